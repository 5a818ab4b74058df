// `exponentials_` of `slopes` in one launch, a block a row.
//
// REAL: the type. THREADS: of a block. PLUS_ONE: whether there is a further logit of 0.

#include "warp.h"

const int WARPS = THREADS / 32;

extern "C" __global__ void __launch_bounds__(THREADS) exponentials(
    REAL* __restrict__ logits,  // (rows, columns); become the exponentials
    REAL* __restrict__ norms,   // a row each, and so the next
    REAL* __restrict__ logs,
    double least, int columns)  // the smallest number
{
    __shared__ REAL tops[WARPS], sums[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    REAL* const row = logits + (i64)blockIdx.x * columns;
    REAL top = PLUS_ONE ? 0 : (REAL)least, sum = 0;
    for (int k = threadIdx.x; k < columns; k += THREADS) top = max(top, row[k]);
    top = top_of_warp(top);
    if (lane == 0) tops[warp] = top;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) top = max(top, tops[w]);
    for (int k = threadIdx.x; k < columns; k += THREADS) {
        const REAL each = exp(row[k] - top);
        row[k] = each;
        sum += each;
    }
    sum = sum_of_warp(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < WARPS; w++) sum += sums[w];
    if (PLUS_ONE) sum += expm1(-top);  // less 1, in units of exp(top): exact where top is 0
    norms[blockIdx.x] = PLUS_ONE ? sum + 1 : max(sum, (REAL)1);
    logs[blockIdx.x] = top + (PLUS_ONE ? log1p(sum) : log(sum));
}
