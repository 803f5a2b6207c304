#!/bin/sh
# An assembler that is ended from outside.
[ "$1" = --version ] && echo "Cuda compilation tools, release 13.0, V13.0.88" && exit 0
echo "ptxas info    : so far so good"
kill -9 $$
