// The greedy steps of `medoids` in one launch, for the time of a step is that of its trips to memory.
//
// A block has 32 EACH candidates, EACH a lane, and keeps in shared memory what all must know of the
// samples, and the counts of its own candidates. In a step its warps share the samples that move: each
// adds up what a sample changes for the candidates of its lanes. Then the block writes its best
// candidate down, and looks for those of the others until all are there. Nothing else passes between
// blocks. All of them must be on the device at once.
//
// REAL: the type of the distances. EACH: candidates a lane. SHARED: how many of the tables of samples,
// of f, and of counts are in shared memory; what is not is in the workspace, slower. Sums are exact, so
// their order is free. THREADS: of a block. LISTENED: how many blocks a lane listens to, at most.
// Samples, clusters and counts have 16 bits: up to 65,535 samples.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;

const int WARPS = THREADS / 32;
const unsigned EVERYONE = ~0u;
#define FARTHEST __longlong_as_double(0x7ff0000000000000ll)
const int AHEAD = 4;     // loads of a thread on their way at a time

struct Message { u64 key, from; };  // from: 1 + candidate; both 0: not there yet

#ifdef __CUDACC__
__device__ Message receive(const Message* at) {
    Message it;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(it.key), "=l"(it.from) : "l"(at));
    return it;
}

__device__ void send(Message* at, Message it) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(it.key), "l"(it.from) : "memory");
}
#else  // emulated
Message receive(const volatile Message* at) { return {at->key, at->from}; }
void send(volatile Message* at, Message it) { at->key = it.key, at->from = it.from; }
#endif

__device__ bool better(Message one, Message other) {
    return one.key > other.key || (one.key == other.key && one.from < other.from);
}

__device__ Message best_of_warp(Message it) {
#if __CUDA_ARCH__ >= 800
    const unsigned high = it.key >> 32, low = it.key, from = it.from;
    const unsigned top = __reduce_max_sync(EVERYONE, high);
    const unsigned rest = __reduce_max_sync(EVERYONE, high == top ? low : 0);
    const bool first = high == top && low == rest;
    return {(u64)top << 32 | rest, __reduce_min_sync(EVERYONE, first ? from : ~0u)};
#else
    for (int apart = 16; apart; apart /= 2) {
        const Message other = {__shfl_xor_sync(EVERYONE, it.key, apart), __shfl_xor_sync(EVERYONE, it.from, apart)};
        if (better(other, it)) it = other;
    }
    return it;
#endif
}

// Larger for larger scores; at least 2, so that 1 is left for a candidate that is taken.
__device__ u64 ordered(double score) {
    const i64 bits = __double_as_longlong(score == score ? score + 0.0 : -FARTHEST);
    return bits < 0 ? ~bits : bits | 1ull << 63;
}

__device__ double power_of_2(int exponent) { return __longlong_as_double((i64)(exponent + 1023) << 52); }

// Binary places with which `size` numbers up to the largest add up to less than 2^62.
__device__ int fraction_places(double largest, int size) {
    int bits = 0;
    while (size >> bits) bits++;
    const int top = largest == 0 ? 0 : (int)(__double_as_longlong(largest) >> 52) - 1022;
    return min(62 - bits - top, 1000);
}

__device__ i64 fixed(REAL x, double scale) { return __double2ll_rz((double)x * scale); }

// A table of so many, and what comes after it.
template <class T> __device__ T* take(char*& from, int count) {
    T* const table = (T*)from;
    from += (count * sizeof(T) + 15) / 16 * 16;
    return table;
}

struct Sums { i64 cost, joint, clusters, counts; };  // counts: lost << 32 | joined

extern "C" __global__ void __launch_bounds__(THREADS, 1) greedy_steps(
    const REAL* __restrict__ distances,  // (size, size), symmetric
    const REAL* __restrict__ largest,    // of the distances
    const i64* __restrict__ class_of,    // a sample each
    const i64* __restrict__ order,       // the samples, class after class
    const i64* __restrict__ begins,      // where each class begins there, and the end
    const i64* __restrict__ entropy_of,  // f(0), ..., f(size)
    Message* messages,  // (classes, blocks), all 0
    char* workspace,    // (blocks, room)
    i64* medoids,       // a cluster each
    i64* found,         // a sample each: its medoid
    REAL* nmi,
    double weight, int size, int classes, int room)
{
    extern __shared__ __align__(16) char shared[];
    __shared__ int medoid, count;
    __shared__ u64 true_part;  // sum_c f(n_c)
    char *here = shared, *there = workspace + (i64)blockIdx.x * room;
    i64* const parts = take<i64>(here, EACH * 4 * THREADS);  // what each warp has of the four sums
    char*& samples = SHARED > 0 ? here : there;
    REAL* const near = take<REAL>(samples, size);
    REAL* const row = take<REAL>(samples, size);
    u16* const cluster = take<u16>(samples, size);
    u16* const moved = take<u16>(samples, size);
    u16* const members = take<u16>(samples, size);
    u16* const starts = take<u16>(samples, size);
    u16* const ends = take<u16>(samples, size);
    i64* const entropy = take<i64>(SHARED > 1 ? here : there, size + 1);
    unsigned* const left = take<unsigned>(SHARED > 2 ? here : there, classes * EACH * 16);  // |k - T_i|, two in a word

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, half = lane % 2 * 16;
    const int places = fraction_places(*largest, size);
    const double scale = power_of_2(places), unit = power_of_2(-places);
    int own[EACH], column[EACH];
    for (int e = 0; e < EACH; e++) {
        own[e] = (blockIdx.x * EACH + e) * 32 + lane;
        column[e] = min(own[e], size - 1);
    }
    for (int p = thread; p <= size; p += THREADS) entropy[p] = entropy_of[p];
    for (int p = thread; p < size; p += THREADS) {
        near[p] = FARTHEST;
        cluster[p] = 0;
        members[p] = order[p];
        starts[p] = begins[class_of[p]];
        ends[p] = begins[class_of[p] + 1];
    }
    if (thread == 0) true_part = 0;
    __syncthreads();
    for (int c = thread; c < classes; c += THREADS) atomicAdd(&true_part, (u64)entropy[begins[c + 1] - begins[c]]);
    for (int k = thread; k < classes * EACH * 16; k += THREADS) left[k] = 0;
    for (int e = 0; e < EACH; e++) {  // the cost of each candidate as the only medoid
        i64 sum = 0;
#pragma unroll 8
        for (int p = warp; p < size; p += WARPS) sum += fixed(distances[(i64)p * size + column[e]], scale);
        parts[e * THREADS + thread] = sum;
    }
    __syncthreads();
    i64 cost[EACH], mutual[EACH], both[EACH];  // of warp 0, and so the next two: NMI = 2 mutual / both
    int taken[EACH];
    bool free[EACH];
    for (int e = 0; e < EACH; e++) {
        cost[e] = 0;
        if (warp == 0) for (int w = 0; w < WARPS; w++) cost[e] += parts[e * THREADS + w * 32 + lane];
        mutual[e] = 0;
        both[e] = entropy[size] - (i64)true_part;
        taken[e] = size;
        free[e] = own[e] < size;
    }

    for (int step = 0; step < classes; step++) {
        if (warp == 0) {
            double information[EACH];
            Message best = {0, 0};
            for (int e = 0; e < EACH; e++) {
                information[e] = both[e] == 0 ? 1.0 : 2 * (double)mutual[e] / (double)max(both[e], 1ll);
                // no fused multiply and add: as on the CPU, to the last bit
                const double margin = __dmul_rn(weight, 1 - information[e]);
                const double score = __dsub_rn(margin, (double)cost[e] * unit);
                const Message it = {free[e] ? ordered(score) : 1, 1ull + own[e]};
                if (better(it, best)) best = it;
            }
            best = best_of_warp(best);
            Message* const table = messages + (i64)step * gridDim.x;
            if (lane == 0) send(table + blockIdx.x, best);
            Message heard[LISTENED];
#pragma unroll
            for (int k = 0; k < LISTENED; k++) heard[k] = lane + 32 * k < gridDim.x ? Message{0, 0} : best;
            bool waiting;
            do {  // all that are missing at a time
                waiting = false;
#pragma unroll
                for (int k = 0; k < LISTENED; k++)
                    if (heard[k].key == 0 || heard[k].from == 0) heard[k] = receive(table + lane + 32 * k);
#pragma unroll
                for (int k = 0; k < LISTENED; k++) waiting |= heard[k].key == 0 || heard[k].from == 0;
            } while (waiting);
#pragma unroll
            for (int k = 0; k < LISTENED; k++)
                if (better(heard[k], best)) best = heard[k];
            best = best_of_warp(best);
            const int chosen = best.from - 1;
            for (int e = 0; e < EACH; e++)
                if (own[e] == chosen) {
                    free[e] = false;
                    if (step == classes - 1) *nmi = (REAL)information[e];
                }
            if (lane == 0) {
                medoid = chosen;
                count = 0;
                if (blockIdx.x == 0) medoids[step] = chosen;
            }
        }
        __syncthreads();

        const REAL* const chosen = distances + (i64)medoid * size;
        for (int first = 0; first < size; first += AHEAD * THREADS) {  // who is nearer to it
            REAL apart[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int p = first + k * THREADS + thread;
                apart[k] = p < size ? chosen[p] : FARTHEST;
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int p = first + k * THREADS + thread;
                const bool nearer = p < size && apart[k] < near[p];
                if (p < size) row[p] = apart[k];
                const unsigned votes = __ballot_sync(EVERYONE, nearer);
                if (votes) {
                    int place = 0;
                    if (lane == 0) place = atomicAdd(&count, __popc(votes));
                    place = __shfl_sync(EVERYONE, place, 0) + __popc(votes & ((1u << lane) - 1));
                    if (nearer) moved[place] = p;
                }
            }
        }
        __syncthreads();

        const int many = count;
        Sums sums[EACH] = {};
        for (int m = warp; m < many; m += WARPS) {
            const int p = moved[m], old = cluster[p], end = ends[p];
            const REAL was = near[p], now = row[p];
            for (int e = 0; e < EACH; e++) {
                const REAL apart = distances[(i64)p * size + column[e]];
                // within the class of p, those before p having moved: of p's cluster outside T_i, in
                // T_i, and outside T_i in the new cluster
                int pair = 0, same = 0, fresh = 0;
                for (int first = starts[p]; first < end; first += AHEAD) {
                    int mate[AHEAD];
                    REAL to[AHEAD];
#pragma unroll
                    for (int k = 0; k < AHEAD; k++) {
                        mate[k] = members[min(first + k, end - 1)];
                        to[k] = distances[(i64)mate[k] * size + column[e]];
                    }
#pragma unroll
                    for (int k = 0; k < AHEAD; k++) {
                        if (first + k >= end) break;
                        const int q = mate[k];  // and all of it but `within` the same for all lanes
                        const REAL before = near[q], after = row[q];
                        const bool done = q < p && after < before;
                        const bool within = to[k] < (done ? after : before);
                        same += within;
                        if (done) fresh += !within;
                        else if (cluster[q] == old) pair += !within;
                    }
                }
                const bool outside = apart >= was;
                if (apart >= now) {
                    sums[e].cost += fixed(now, scale) - fixed(outside ? was : apart, scale);
                    sums[e].joint += entropy[fresh + 1] - entropy[fresh];
                    const int gone = outside ? pair : same;
                    sums[e].joint -= entropy[gone] - entropy[gone - 1];
                    sums[e].counts += outside ? 1 : 1ll << 32 | 1;
                }
                if (outside) {
                    unsigned* const word = left + (old * EACH + e) * 16 + lane / 2;
                    const int before = atomicSub(word, 1u << half) >> half & 0xffff;
                    sums[e].clusters -= entropy[before] - entropy[before - 1];
                }
            }
        }
        if (warp < many)
            for (int e = 0; e < EACH; e++) {
                i64* const own_part = parts + e * 4 * THREADS + thread;
                own_part[0] = sums[e].cost;
                own_part[THREADS] = sums[e].joint;
                own_part[2 * THREADS] = sums[e].clusters;
                own_part[3 * THREADS] = sums[e].counts;
            }
        __syncthreads();

        if (warp < 4) {  // a sum each
            for (int e = 0; e < EACH; e++) {
                i64* const part = parts + (e * 4 + warp) * THREADS + lane;
                i64 sum = 0;
#pragma unroll 4
                for (int w = 0; w < min(many, WARPS); w++) sum += part[w * 32];
                *part = sum;
            }
            __barrier_sync_count(1, 128);
        } else {
            for (int m = thread - 128; m < many; m += THREADS - 128) {
                const int p = moved[m];
                near[p] = row[p];
                cluster[p] = step;
            }
        }
        if (warp == 0)  // the others wait for the next medoid
            for (int e = 0; e < EACH; e++) {
                const i64* const sum = parts + e * 4 * THREADS + lane;
                const int joined = (int)sum[3 * THREADS], kept = taken[e] - (int)(sum[3 * THREADS] >> 32);
                const i64 grown = sum[2 * THREADS] + entropy[joined] + entropy[kept] - entropy[taken[e]];
                cost[e] += sum[0];
                mutual[e] += sum[THREADS] - grown;
                both[e] -= grown;
                taken[e] = kept;
                atomicAdd(left + (step * EACH + e) * 16 + lane / 2, (unsigned)joined << half);
            }
    }
    __syncthreads();
    if (blockIdx.x == 0)
        for (int p = thread; p < size; p += THREADS) found[p] = medoids[cluster[p]];
}
