//! One instruction of a plane's tensor cores, and the registers of its factors.
//!
//! CubeCL's `execute` copies every fragment through an array in local memory. The machine code is
//! the same in the end, but NVRTC takes longer.

use cubecl::prelude::*;

use super::arithmetic::Arithmetic;

/// `left · right + sum`: sixteen rows, eight columns, and sixteen terms of bf16 or eight of TF32.
#[cube]
pub(super) fn multiply_add(
    left: Vector<u32, Const<4>>,
    right: Vector<u32, Const<2>>,
    sum: Vector<f32, Const<4>>,
    #[comptime] arithmetic: Arithmetic,
) -> Vector<f32, Const<4>> {
    let result: Vector<f32, Const<4>>;
    if comptime!(arithmetic == Arithmetic::Bf16) {
        gpu_asm!(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d}, {a}, {b}, {c};",
            a = in(_) left, b = in(_) right, c = in(_) sum, d = out(_) result,
            options(pure, nomem),
        );
    } else {
        gpu_asm!(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {d}, {a}, {b}, {c};",
            a = in(_) left, b = in(_) right, c = in(_) sum, d = out(_) result,
            options(pure, nomem),
        );
    }
    result
}

/// Registers of a fragment, from the `first` of those that `ldmatrix` loaded.
#[cube]
pub(super) fn packed<S: Float, N: Size, R: Size>(
    loaded: &Array<Vector<S, N>>,
    #[comptime] first: usize,
) -> Vector<u32, R> {
    let mut registers = Vector::<u32, R>::empty();
    #[unroll]
    for r in 0..R::value() {
        registers.insert(r, u32::reinterpret(loaded[comptime!(first + r)]));
    }
    registers
}
