"""Writes all micro-kernels, launch descriptions, inputs and expected bytes: `python3 expected.py`.

Needs numpy. Nothing here comes from the emulator: values are rationals, layouts are reshapes.
"""
import expected_gemm
import expected_mma
import expected_num
import expected_questions
import expected_tma
import expected_tmem
import kernels
import kernels_tile
import kernels_tmem
from cases import save

if __name__ == "__main__":
    kernels.numbers()
    for step in (kernels_tile.matrix_moves, kernels_tile.mma_sync, kernels_tile.wgmma, kernels_tile.tma, kernels_tmem.moves, kernels_tmem.mma, kernels_tmem.copies):
        step()
    for module in (expected_num, expected_mma, expected_tma, expected_tmem, expected_gemm, expected_questions):
        module.run()
    save()
