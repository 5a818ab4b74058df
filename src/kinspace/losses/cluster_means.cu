// Magnet and cluster NCA in two launches beside those of `class_sums` and `distances`: from the table of
// squares to the terms, and to the gradient by the table; the rest of the gradient.
//
// REAL: the type. THREADS: of a block.

#include "warp.h"

const int WARPS = THREADS / 32;

// What all threads of the block add up, in an order that is the same in every block.
template <class Each> __device__ double sum_over(int size, Each each) {
    __shared__ double sums[WARPS];
    double sum = 0;
    for (int n = threadIdx.x; n < size; n += THREADS) sum += each(n);
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < WARPS; w++) sum += sums[w];
    return sum;
}

// A softmax over some clusters of a row.
struct Softmax {
    REAL nearest, log, norm, mean;  // their least square, the log of the norm, and their mean square
};

// The exponents are less that of the nearest, where they are exactly 0. Over nothing the log is -inf, and
// the norm 1.
template <class Which> __device__ Softmax softmax(const REAL* row, int count, REAL scale, Which which) {
    const int lane = threadIdx.x % 32;
    REAL nearest = INFINITE, norm = 0, sum = 0;
    for (int k = lane; k < count; k += 32)
        if (which(k)) nearest = min(nearest, row[k]);
    nearest = -top_of_warp(-nearest);
    for (int k = lane; k < count; k += 32)
        if (which(k)) {
            const REAL each = exp((row[k] - nearest) * scale);
            norm += each;
            sum += each * row[k];
        }
    norm = sum_of_warp(norm);
    sum = sum_of_warp(sum);
    return {nearest, log(norm), max(norm, (REAL)1), sum / max(norm, (REAL)1)};
}

// A warp has a row. Its term is a function of log(sum of others) - log(sum of mates): others are the
// clusters of other classes, mates those of the sample's class, or only its own cluster.
extern "C" __global__ void __launch_bounds__(THREADS) cluster_terms(
    const REAL* __restrict__ squares,  // (size, count)
    const i64* __restrict__ clusters,  // a sample each
    const i64* __restrict__ labels,    // a cluster each, and so the next
    const REAL* __restrict__ counts,
    REAL* __restrict__ terms,  // a sample each, and so the next
    REAL* __restrict__ moves,  // how the mean loss moves with the log of the scale
    REAL* __restrict__ weights,  // (size, count): the gradient of the mean loss, but through the scale
    REAL* __restrict__ variance, REAL* __restrict__ scale_out,
    double freedom, double eps, double alpha, int size, int count, int whole_class)
{
    const double own_squares = sum_over(size, [&](int n) { return squares[(i64)n * count + clusters[n]]; });
    const REAL scale = -0.5 / (own_squares / freedom + eps);
    if (blockIdx.x == 0 && threadIdx.x == 0) *variance = own_squares / freedom, *scale_out = scale;

    const int lane = threadIdx.x % 32;
    for (int n = blockIdx.x * WARPS + threadIdx.x / 32; n < size; n += gridDim.x * WARPS) {
        const REAL* const row = squares + (i64)n * count;
        const int own = clusters[n];
        const i64 label = labels[own];
        // one so far away that its square overflows weighs nothing
        const auto present = [&](int k) { return counts[k] > 0 && row[k] < (REAL)INFINITE; };
        const auto is_other = [&](int k) { return present(k) && labels[k] != label; };
        const auto is_mate = [&](int k) { return present(k) && (whole_class ? labels[k] == label : k == own); };
        const Softmax others = softmax(row, count, scale, is_other), mates = softmax(row, count, scale, is_mate);
        const REAL odds = (others.nearest - mates.nearest) * scale + others.log - mates.log;
        REAL term, push;
        if (whole_class) {
            term = max(odds, (REAL)0) + log1p(exp(odds > 0 ? -odds : odds));
            push = 1 / (1 + exp(-odds));
        } else {
            term = odds + (REAL)alpha;
            if (term < 0) term = 0;
            push = term > 0;
        }
        push /= size;
        if (lane == 0) {
            terms[n] = term;
            moves[n] = push * (others.mean - mates.mean) * scale;
        }
        for (int k = lane; k < count; k += 32) {
            REAL weight = 0;
            if (is_other(k)) weight = exp((row[k] - others.nearest) * scale) / others.norm;
            if (is_mate(k)) weight = -exp((row[k] - mates.nearest) * scale) / mates.norm;
            weights[(i64)n * count + k] = push * weight * scale;
        }
    }
}

// To the gradient by the samples, with means and V left as they are, add that through the means and that
// through V, which does not move with the means: they are where it is smallest.
extern "C" __global__ void __launch_bounds__(THREADS) whole_slope(
    const REAL* __restrict__ rows,  // (size, dim)
    const i64* __restrict__ clusters,
    const REAL* __restrict__ means,  // (count, dim)
    const REAL* __restrict__ counts,
    const REAL* __restrict__ by_means,  // (count, dim)
    const REAL* __restrict__ moves,
    const REAL* __restrict__ scale,
    REAL* __restrict__ slopes,  // (size, dim)
    double freedom, int size, int dim)
{
    // the scale is -1/(2V): its log moves by 2 scale dV
    const REAL by_offset = sum_over(size, [&](int n) { return moves[n]; }) * 4 * *scale / freedom;
    for (int n = blockIdx.x; n < size; n += gridDim.x) {
        const int own = clusters[n];
        const REAL divisor = counts[own];
        for (int d = threadIdx.x; d < dim; d += THREADS) {
            const i64 at = (i64)n * dim + d, mean = (i64)own * dim + d;
            slopes[at] += by_means[mean] / divisor + by_offset * (rows[at] - means[mean]);
        }
    }
}
