// NRA from the table of squared distances on, in one launch: the four neighbors of each sample, the
// loss of its two ranks, and the gradient. A warp has a sample.
//
// REAL: the type. THREADS: of a block.

#include "warp.h"

struct Extreme {
    REAL square;
    int place;  // -1: none
};

// Of all lanes the largest, or the smallest; the first of equal ones.
__device__ Extreme extreme_of_warp(Extreme it, bool largest) {
    for (int apart = 16; apart; apart /= 2) {
        const Extreme other = {__shfl_xor_sync(EVERYONE, it.square, apart), __shfl_xor_sync(EVERYONE, it.place, apart)};
        if (other.place < 0) continue;
        const bool further = largest ? other.square > it.square : other.square < it.square;
        if (it.place < 0 || further || (other.square == it.square && other.place < it.place)) it = other;
    }
    return it;
}

__device__ void meet(Extreme& it, REAL square, int place, bool largest) {
    if (it.place < 0 || (largest ? square > it.square : square < it.square)) it = {square, place};
}

extern "C" __global__ void __launch_bounds__(THREADS) rank_terms(
    const REAL* __restrict__ squares,  // (size, size)
    const REAL* __restrict__ rows,     // (size, dim)
    const i64* __restrict__ labels,
    REAL* __restrict__ terms,  // a sample each: its part of the mean
    REAL* slopes,              // (size, dim), all 0
    double alpha, double eps, int size, int dim, int fixed_range)
{
    const int lane = threadIdx.x % 32, i = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (i >= size) return;
    Extreme four[4] = {{0, -1}, {0, -1}, {0, -1}, {0, -1}};  // positive, negative, farthest, nearest
    for (int j = lane; j < size; j += 32) {
        if (j == i) continue;
        const REAL square = squares[(i64)i * size + j];
        const bool same = labels[j] == labels[i];
        meet(four[same ? 0 : 1], square, j, same);
        meet(four[2], square, j, true);
        meet(four[3], square, j, false);
    }
    REAL distances[4] = {}, weights[4] = {};
    const REAL* const x = rows + (i64)i * dim;
    for (int k = 0; k < 4; k++) {
        four[k] = extreme_of_warp(four[k], k % 2 == 0);
        if (four[k].place < 0) continue;
        const REAL* const other = rows + (i64)four[k].place * dim;
        REAL sum = 0;
        for (int d = lane; d < dim; d += 32) sum += (x[d] - other[d]) * (x[d] - other[d]);
        distances[k] = sqrt(sum_of_warp(sum));
    }
    // q = (1 - r+, r-), of which both terms are -log(w(q) + eps)
    REAL term = 0;
    for (int k = 0; k < 2; k++) {
        const bool missing = four[k].place < 0 || !(four[k].square < (REAL)INFINITE);
        const REAL span = distances[2 + k] - distances[3 - k];
        REAL q = span == 0 ? (REAL)0.5 : (distances[2 + k] - distances[k]) / span;
        q = q < 0 ? 0 : q > 1 ? 1 : q;
        const bool low = q < (REAL)0.5;
        const REAL twice = 2 * (low ? q : 1 - q), half = (REAL)0.5 * pow(twice, (REAL)alpha);
        const REAL weight = (low ? half : 1 - half) + (REAL)eps;
        if (missing) continue;
        term -= log(weight);
        if (span == 0) continue;
        const REAL by_pair = pow(twice, (REAL)(alpha - 1)) / weight * (REAL)(-alpha / size) / span;
        weights[k] = -by_pair;
        if (fixed_range) continue;
        // an end moves its own q by 1 - q over its span, and the other q by q over the other span
        weights[2 + k] += by_pair - by_pair * q;
        weights[3 - k] += by_pair * q;
    }
    if (lane == 0) terms[i] = term / size;
    for (int k = 0; k < 4; k++) weights[k] = distances[k] > 0 ? weights[k] / distances[k] : 0;
    for (int d = lane; d < dim; d += 32) {
        REAL own = 0;
        for (int k = 0; k < 4; k++) {
            if (weights[k] == 0) continue;
            const i64 at = (i64)four[k].place * dim + d;
            const REAL pull = (x[d] - rows[at]) * weights[k];
            own += pull;
            atomicAdd(slopes + at, -pull);
        }
        atomicAdd(slopes + (i64)i * dim + d, own);
    }
}
