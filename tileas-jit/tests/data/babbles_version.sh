#!/bin/sh
# No assembler at all.
echo "hello"
