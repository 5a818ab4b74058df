// `class_sums` and `class_means` in one launch. A block has a class, a thread some dimensions.
//
// REAL: the type. THREADS: of a block.

#include "warp.h"

extern "C" __global__ void __launch_bounds__(THREADS) sums_of_classes(
    const REAL* __restrict__ rows,  // (size, dim)
    const i64* __restrict__ classes,
    REAL* __restrict__ sums,    // (count, dim); or means, 0 over nothing
    REAL* __restrict__ counts,  // a class each
    int size, int dim, int means)
{
    int count = 0;
    for (int begin = 0; begin < dim; begin += THREADS) {
        const int d = begin + threadIdx.x;
        const REAL sum = sum_of_class(rows, classes, blockIdx.x, size, dim, d, count);
        if (d < dim) sums[(i64)blockIdx.x * dim + d] = means ? sum / max(count, 1) : sum;
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}
