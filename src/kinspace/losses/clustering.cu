// What follows the medoids of `clustering`, in two launches instead of thirty: the medoid of each
// class, the lengths and their gradient; then the hinge.
//
// REAL: the type. THREADS: of a block. Samples are by their place in the order of the classes, rows
// and slopes by the batch's.

#include "warp.h"

const int WARPS = THREADS / 32;

// A block has a class: it finds the sample with the smallest summed distance to the others, the first
// of equal ones, and takes every sample from that to the medoid that was found for it.
extern "C" __global__ void __launch_bounds__(THREADS) class_terms(
    const REAL* __restrict__ rows,       // (size, dim)
    const REAL* __restrict__ distances,  // (size, size)
    const i64* __restrict__ order,       // a sample each: its row
    const i64* __restrict__ begins,      // where each class begins, and the end
    const i64* __restrict__ found,       // a sample each: its medoid
    REAL* __restrict__ gaps,             // a sample each: how much farther its class's is
    REAL* slopes,                        // (size, dim), all 0
    double tiny, int size, int dim)      // lengths up to tiny have no gradient
{
    __shared__ double least_of[WARPS];
    __shared__ int first_of[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int begin = begins[blockIdx.x], end = begins[blockIdx.x + 1];
    double least = INFINITE;
    int medoid = begin;
    for (int p = begin + warp; p < end; p += WARPS) {
        double cost = 0;
        for (int q = begin + lane; q < end; q += 32) cost += distances[(i64)p * size + q];
        cost = sum_of_warp(cost);
        if (cost < least) least = cost, medoid = p;
    }
    if (lane == 0) least_of[warp] = least, first_of[warp] = medoid;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        if (least_of[w] < least || (least_of[w] == least && first_of[w] < medoid)) least = least_of[w], medoid = first_of[w];

    for (int p = begin + warp; p < end; p += WARPS) {
        const i64 own = order[p] * dim, to[2] = {order[medoid] * dim, order[found[p]] * dim};
        REAL sums[2] = {}, lengths[2];
        for (int d = lane; d < dim; d += 32)
            for (int k = 0; k < 2; k++) {
                const REAL apart = rows[own + d] - rows[to[k] + d];
                sums[k] += apart * apart;
            }
        for (int k = 0; k < 2; k++) lengths[k] = sqrt(sum_of_warp(sums[k]));
        if (lane == 0) gaps[p] = lengths[0] - lengths[1];
        for (int k = 0; k < 2; k++) {
            if (to[k] == own) continue;
            const REAL divisor = without_zero(lengths[k], tiny) * (k ? -1 : 1);
            for (int d = lane; d < dim; d += 32) {
                const REAL slope = (rows[own + d] - rows[to[k] + d]) / divisor;
                atomicAdd(slopes + own + d, slope);
                atomicAdd(slopes + to[k] + d, -slope);
            }
        }
    }
}

// max(0, sum of the gaps + weight (1 - NMI)), without slopes where that is 0.
extern "C" __global__ void __launch_bounds__(THREADS) hinge(
    const REAL* __restrict__ gaps, const REAL* __restrict__ nmi, REAL* __restrict__ slopes, REAL* __restrict__ value,
    double weight, int size, int dim)
{
    __shared__ double sums[WARPS];
    double sum = 0;
    for (int p = threadIdx.x; p < size; p += THREADS) sum += gaps[p];
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    double gap = weight * (1 - (double)*nmi);
    for (int w = 0; w < WARPS; w++) gap += sums[w];
    if (blockIdx.x == 0 && threadIdx.x == 0) *value = gap <= 0 ? 0 : gap;
    if (gap > 0) return;
    for (i64 k = blockIdx.x * THREADS + threadIdx.x; k < (i64)size * dim; k += gridDim.x * THREADS) slopes[k] *= 0;
}
