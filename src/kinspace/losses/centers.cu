// `follow_all` of `centers` in one launch: the sums of the classes, and what becomes of their centers. A
// block has a class, a thread some of its dimensions.
//
// REAL: the type. THREADS: of a block.

#include "warp.h"

extern "C" __global__ void __launch_bounds__(THREADS) follow(
    const REAL* __restrict__ rows,  // (size, dim)
    const i64* __restrict__ labels,
    REAL* __restrict__ centers,         // (classes, dim)
    unsigned char* __restrict__ seen,   // a class each: whether it was, and so the next
    unsigned char* __restrict__ known,  // whether it was or is
    REAL* __restrict__ started,         // (classes, dim): the centers before this batch
    double rate, int size, int dim, int training)
{
    const int own = blockIdx.x;
    const bool was_seen = seen[own];
    int count = 0;
    for (int begin = 0; begin < dim; begin += THREADS) {
        const int d = begin + threadIdx.x;
        const REAL sum = sum_of_class(rows, labels, own, size, dim, d, count);
        if (d >= dim) continue;
        const i64 at = (i64)own * dim + d;
        const REAL start = count && !was_seen ? sum / count : centers[at];
        started[at] = start;
        if (training) centers[at] = start + (REAL)rate * ((sum - count * start) / (1 + count));
    }
    __syncthreads();  // all have looked whether it was seen
    if (threadIdx.x > 0) return;
    known[own] = was_seen || count;
    if (training) seen[own] = known[own];
}
