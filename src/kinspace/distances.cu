// Distances from the products of rows around their mean, |c_i|^2 + |c_j|^2 - 2 c_i.c_j, in one pass:
// pairs closer than CLOSE of these squares are done again by differences, as in `distances`. They may
// come in an order of their own, of which the products know nothing: a GPU makes these while the host
// still looks for it.
//
// ROOT: whether they are distances, or their squares. FINITE: whether one that overflows is the largest.
// REAL: the type. PACK: numbers that are written at a time. THREADS: of a block. A warp has a strip of a
// row, 32 PACK wide.

#include "warp.h"

struct alignas(PACK * sizeof(REAL)) Pack { REAL at[PACK]; };

extern "C" __global__ void __launch_bounds__(THREADS) distances_of_products(
    const REAL* __restrict__ products,  // (size, size)
    const REAL* __restrict__ rows,      // (size, dim)
    const i64* __restrict__ order,      // which row comes at each place; 0: as they are
    const REAL* __restrict__ squares,   // |c_i|^2, a place each
    REAL* __restrict__ distances,
    REAL* __restrict__ tops,             // a block each: the largest of its distances
    double close_part, double largest, int size, int dim)
{
    const auto row_at = [&](int place) { return order ? order[place] : place; };
    __shared__ REAL top_of[THREADS / 32];
    REAL top = 0;
    const int lane = threadIdx.x % 32, warps = gridDim.x * (THREADS / 32);
    const int strips = (size + 32 * PACK - 1) / (32 * PACK);
    for (int strip = blockIdx.x * (THREADS / 32) + threadIdx.x / 32; strip < strips * size; strip += warps) {
        const int i = strip / strips, first = (strip % strips * 32 + lane) * PACK;
        const i64 row = row_at(i);
        const bool here = first < size;
        Pack result = {}, others = {};
        if (here) {
            for (int k = 0; k < PACK; k++) result.at[k] = products[row * size + row_at(first + k)];
            others = *(const Pack*)(squares + first);
        }
        unsigned close = 0;
        for (int k = 0; k < PACK; k++) {
            const REAL both = squares[i] + others.at[k];
            result.at[k] = both - 2 * result.at[k];
            if (here && i != first + k && result.at[k] <= (REAL)close_part * both) close |= 1u << k;
        }
        for (unsigned lanes = __ballot_sync(EVERYONE, close != 0); lanes; lanes &= lanes - 1) {
            const int from = __ffs(lanes) - 1, j = __shfl_sync(EVERYONE, first, from);
            const unsigned which = __shfl_sync(EVERYONE, close, from);
#pragma unroll
            for (int k = 0; k < PACK; k++)
                if (which >> k & 1) {
                    REAL sum = 0;
                    const i64 other = row_at(j + k);
                    for (int d = lane; d < dim; d += 32) {
                        const REAL apart = rows[row * dim + d] - rows[other * dim + d];
                        sum += apart * apart;
                    }
                    sum = sum_of_warp(sum);
                    if (lane == from) result.at[k] = sum;
                }
        }
        for (int k = 0; k < PACK; k++) {
            const REAL square = i == first + k ? 0 : result.at[k];
            result.at[k] = square < (REAL)INFINITE ? max(square, (REAL)0) : square;
            if (ROOT) result.at[k] = sqrt(result.at[k]);
            if (FINITE && !(result.at[k] < (REAL)INFINITE)) result.at[k] = largest;
            if (here) top = max(top, result.at[k]);
        }
        if (here) *(Pack*)(distances + (i64)i * size + first) = result;
    }
    top = top_of_warp(top);
    if (lane == 0) top_of[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; warp++) top = max(top, top_of[warp]);
        tops[blockIdx.x] = top;
    }
}
