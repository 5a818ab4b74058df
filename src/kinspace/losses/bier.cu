// A learner of `bier` in one launch, between the cosines of all pairs and their gradient. A block has a
// row.
//
// REAL: the type. THREADS: of a block.

#include "warp.h"

const int WARPS = THREADS / 32;

// 1 / (1 + exp(z))
__device__ REAL missed(REAL z) { return 1 / (1 + exp(z)); }

extern "C" __global__ void __launch_bounds__(THREADS) boost(
    REAL* __restrict__ table,         // (size, size): cosines; become the slopes by them, both ways
    REAL* __restrict__ ensemble,      // (size, size): z of the learners before
    const i64* __restrict__ labels,
    REAL* __restrict__ sums,          // a row each: of w log(1 + exp(-z))
    double scale, double margin, double cost, double same_share, double different_share,
    double part,  // of this learner in the ensemble; 1 for the first
    int size)
{
    __shared__ REAL sum_of[WARPS];
    const int i = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    REAL sum = 0;
    for (int j = threadIdx.x; j < size; j += THREADS) {
        const i64 at = (i64)i * size + j;
        const bool different = labels[i] != labels[j];
        const REAL steepness = different ? -cost * scale : scale;
        const REAL share = i == j ? 0 : different ? different_share : same_share;
        const REAL z = (table[at] - (REAL)margin) * steepness;
        const REAL before = part < 1 ? ensemble[at] : z;
        const REAL weight = part < 1 ? share * missed(before) : share;
        sum += weight * (log1p(exp(z < 0 ? z : -z)) - min(z, (REAL)0));
        table[at] = -2 * missed(z) * weight * steepness;
        ensemble[at] = before + (REAL)part * (z - before);
    }
    sum = sum_of_warp(sum);
    if (lane == 0) sum_of[warp] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < WARPS; w++) sum += sum_of[w];
    sums[i] = sum;
}
