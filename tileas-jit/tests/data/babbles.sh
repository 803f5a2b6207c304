#!/bin/sh
# An assembler whose machine code is none.
[ "$1" = --version ] && echo "Cuda compilation tools, release 13.0, V13.0.88" && exit 0
echo "all is well" | tee kernel.cubin
