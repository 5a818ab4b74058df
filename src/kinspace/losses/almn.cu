// The virtual points of `almn`, as what the loss needs of them: g . c for each sample, and its slope.
//
// REAL: the type. THREADS: of a block. A warp has a sample. CLIPPED: whether the margin is.

#include "warp.h"

// A number for each dimension, added up by the lanes.
template <class Term> __device__ REAL sum_over(int dim, int lane, Term term) {
    REAL sum = 0;
    for (int d = lane; d < dim; d += 32) sum += term(d);
    return sum_of_warp(sum);
}

extern "C" __global__ void __launch_bounds__(THREADS) virtual_points(
    const REAL* __restrict__ rows,       // (size, dim): x
    const REAL* __restrict__ centers,    // (size, dim): c, that of the sample's class
    const i64* __restrict__ nearest,     // a sample each: the other class's at the smallest angle to c
    const REAL* __restrict__ closeness,  // -infinity where there is none
    REAL* __restrict__ positive,         // a sample each: g . c
    REAL* __restrict__ slopes,           // (size, dim): of that by x, the angles constant
    double beta, double tiny, int size, int dim)
{
    const int lane = threadIdx.x % 32, sample = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (sample >= size) return;
    const REAL* const x = rows + (i64)sample * dim;
    const REAL* const c = centers + (i64)sample * dim;
    const REAL* const other = rows + nearest[sample] * dim;
    const auto length = [&](auto term) { return sqrt(sum_over(dim, lane, [&](int d) { return term(d) * term(d); })); };
    const auto divisor = [&](auto term) { return without_zero(length(term), tiny); };

    const REAL long_x = length([&](int d) { return x[d]; }), by_x = without_zero(long_x, tiny);
    const REAL by_c = divisor([&](int d) { return c[d]; }), by_other = divisor([&](int d) { return other[d]; });
    // half the angle to the center; unlike an arc cosine exact for small ones too
    const auto half_angle = [&](const REAL* y, REAL by_y) {
        const REAL apart = length([&](int d) { return y[d] / by_y - c[d] / by_c; });
        return atan2(apart, length([&](int d) { return y[d] / by_y + c[d] / by_c; }));
    };
    const REAL gap = half_angle(other, by_other) - half_angle(x, by_x);
    const REAL angle = CLIPPED ? max(gap, (REAL)0) : (gap < 0 ? -gap : gap);
    const REAL strength = closeness[sample] == -(REAL)INFINITE ? 0 : sin(angle) * (REAL)(2 * beta);

    const REAL by_away = divisor([&](int d) { return x[d] - c[d]; }), step = strength * long_x;
    const auto away = [&](int d) { return (x[d] - c[d]) / by_away; };
    const auto moved = [&](int d) { return x[d] + step * away(d); };
    const REAL reach = divisor(moved);
    const REAL cosine = sum_over(dim, lane, [&](int d) { return moved(d) / reach * c[d]; });
    if (lane == 0) positive[sample] = long_x * cosine;
    // by v, of which the direction counts alone: across it, and over its length
    const auto by_moved = [&](int d) { return (c[d] - cosine * (moved(d) / reach)) * (long_x / reach); };
    const REAL along = sum_over(dim, lane, [&](int d) { return by_moved(d) * away(d); });
    const REAL by_length = cosine + strength * along, turning = step / by_away;
    for (int d = lane; d < dim; d += 32) {
        const REAL turned = by_moved(d) - along * away(d);
        const REAL slope = by_moved(d) + turning * turned + by_length * (x[d] / by_x);
        slopes[(i64)sample * dim + d] = long_x > 0 ? slope : c[d];  // x = 0 is its own virtual point
    }
}
