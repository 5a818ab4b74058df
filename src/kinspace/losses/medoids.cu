// The greedy steps of `medoids` in one launch, for the time of a step is that of its trips to memory.
//
// Samples are by their place in the order of the classes. A block has 32 EACH of them as candidates,
// EACH a lane, and keeps in shared memory what all must know of the samples, and which of them its own
// candidates would take. In a step it writes its best candidate down, and looks for those of the
// others until all are there; nothing else passes between blocks, which must all be on the device at
// once. That is warp 0. The others, workers, share the classes of which samples move to the new
// medoid: each adds up what a move changes for the candidates of its lanes.
//
// The second best of a step is the best of the next in seven of eight late steps. So while warp 0
// scores the candidates and listens, the workers move the samples to that one; where it is not chosen,
// they move them back.
//
// A step is some hundred instructions that wait for each other, and those that are not in the nearest
// cache are slow: short code is faster here than unrolled loops.
//
// REAL: the type of the distances. EACH: candidates a lane. SHARED: how many of the tables of samples,
// of the T_i, of f, and of counts are in shared memory; what is not is in the workspace, slower.
// WIDTH: samples of a class in a word of T_i, SINGLE: whether all are in one. LISTENED: blocks a lane
// listens to. PACK: distances that are read at a time, SCANNED: by a thread in all before it looks at
// them. LOGGED: moves of a guess, at most. Sums are exact, so their order is free. Places, clusters
// and counts have 16 bits: up to 65,535 samples.

#include "warp.h"

typedef unsigned long long u64;
typedef unsigned short u16;

const int WARPS = THREADS / 32, WORKERS = WARPS - 1;
struct alignas(PACK * sizeof(REAL)) Pack { REAL at[PACK]; };
const int AHEAD = SCANNED / PACK;  // of these on their way at a time
#if WIDTH == 8
typedef unsigned char Members;
#elif WIDTH == 16
typedef u16 Members;
#else
typedef unsigned Members;
#endif

struct Message {
    u64 key;        // larger for a better candidate
    unsigned from;  // 1 + its place
};
struct alignas(16) Slot { u64 key, from; };  // of a message; 0 until it is there
const unsigned NOBODY = ~0u;

__device__ bool missing(Message it) { return it.from == 0 || (it.key == 0 && it.from != NOBODY); }

#ifdef __CUDACC__
__device__ Message receive(const Slot* at) {
    u64 key, from;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(key), "=l"(from) : "l"(at));
    return {key, (unsigned)from};
}

__device__ void send(Slot* at, Message it) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(it.key), "l"((u64)it.from) : "memory");
}
#else  // emulated
Message receive(const volatile Slot* at) { return yield(), Message{at->key, (unsigned)at->from}; }
void send(volatile Slot* at, Message it) { at->key = it.key, at->from = it.from; }
#endif

__device__ Message best_of_warp(Message it) {
#if __CUDA_ARCH__ >= 800
    const unsigned high = it.key >> 32, low = it.key;
    const unsigned top = __reduce_max_sync(EVERYONE, high);
    const unsigned rest = __reduce_max_sync(EVERYONE, high == top ? low : 0);
    const bool first = high == top && low == rest;
    return {(u64)top << 32 | rest, __reduce_min_sync(EVERYONE, first ? it.from : NOBODY)};
#else
    for (int apart = 16; apart; apart /= 2) {
        const Message other = {__shfl_xor_sync(EVERYONE, it.key, apart), __shfl_xor_sync(EVERYONE, it.from, apart)};
        if (other.key > it.key || (other.key == it.key && other.from < it.from)) it = other;
    }
    return it;
#endif
}

// Larger for larger scores; at least 2, so that 1 is left for a candidate that is taken.
__device__ u64 ordered(double score) {
    const i64 bits = __double_as_longlong(score == score ? score + 0.0 : -INFINITE);
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

struct Counts { int classes, samples, logged; };  // of those that move
struct Sums { i64 cost, joint, clusters; unsigned counts; };  // counts: lost << 16 | joined
const int WIDE = 3 * 32;                            // three words in which 64 bits are added, a lane each
const int COUNTS = 3 * WIDE, LIMBS = COUNTS + 32;  // after cost, joint and clusters the counts

struct Tables {
    unsigned* sums;  // (3, 2, EACH, LIMBS): by the step, of the guess and of another choice
    // a sample each
    REAL *near, *row;  // row less than near: it moves
    u16 *cluster, *class_at;
    // a class each
    u16 *start, *moving;  // where it begins, and the end; those of which samples move
    unsigned* noted;      // the last scan that found it moving
    Members* inside;      // (word, EACH, 32): T_i, a bit a sample of a class
    i64* entropy;         // f(0), ..., f(size)
    unsigned* left;       // (cluster, EACH, 16): |k - T_i|, two in a word
    // moves that may have to be undone
    REAL* log_near;
    u16 *log_place, *log_cluster;
    unsigned* log_inside;
};

// Add to a sum of 64 bits, which shared memory has no atomics for: 24, 24 and 16 bits of it.
__device__ void add_wide(unsigned* sum, i64 value) {
    atomicAdd(sum, (unsigned)value & 0xffffff);
    atomicAdd(sum + 32, (unsigned)(value >> 24) & 0xffffff);
    atomicAdd(sum + 64, (unsigned)(value >> 48));
}

__device__ i64 read_wide(const unsigned* sum) { return sum[0] + ((i64)sum[32] << 24) + ((i64)sum[64] << 48); }

// The first word of a class in T_i.
__device__ int word_of(int its_class, int begin) { return SINGLE ? its_class : its_class + begin / WIDTH; }

// List the classes with samples nearer to a new medoid than to their own, and note how near they are.
__device__ void scan(const Tables& of, const REAL* __restrict__ to_it, int size, int thread, unsigned mark, Counts& counts)
{
#pragma unroll 1
    for (int first = thread * AHEAD * PACK; first < size; first += 32 * WORKERS * AHEAD * PACK) {
        Pack apart[AHEAD];
        unsigned movers = 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * PACK < size) apart[k] = *(const Pack*)(to_it + first + k * PACK);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * PACK < size) {
                const Pack near = *(const Pack*)(of.near + first + k * PACK);
                *(Pack*)(of.row + first + k * PACK) = apart[k];
                for (int each = 0; each < PACK; each++)
                    movers |= (apart[k].at[each] < near.at[each]) << (k * PACK + each);
            }
#pragma unroll 1
        for (; movers; movers &= movers - 1) {
            const int its_class = of.class_at[first + __ffs(movers) - 1];
            atomicAdd(&counts.samples, 1);
            if (atomicExch(of.noted + its_class, mark) != mark) of.moving[atomicAdd(&counts.classes, 1)] = its_class;
        }
    }
}

// Move the samples of the listed classes: a class a warp, its samples one after the other.
__device__ void move(
    const Tables& of, const REAL* __restrict__ distances, const int (&column)[EACH], double scale, int size, int step,
    int lane, int worker, Counts& counts, unsigned* total, bool logs)
{
    const int half = lane % 2 * 16;
    Sums sums[EACH] = {};
#pragma unroll 1
    for (int m = worker; m < counts.classes; m += WORKERS) {
        const int its_class = of.moving[m], begin = of.start[its_class], end = of.start[its_class + 1];
        const int words = word_of(its_class, begin);
        int first = begin;
#pragma unroll 1
        do {
            const bool here = lane < WIDTH && first + lane < end;
            unsigned moves = __ballot_sync(EVERYONE, here && of.row[first + lane] < of.near[first + lane]);
#pragma unroll 1
            for (; moves; moves &= moves - 1) {
                const int bit = __ffs(moves) - 1, place = first + bit, old = of.cluster[place];
                REAL to_it[EACH];
                for (int e = 0; e < EACH; e++) to_it[e] = distances[(i64)place * size + column[e]];
                const REAL was = of.near[place], now = of.row[place];
                int log = 0;
                if (logs && lane == 0) log = atomicAdd(&counts.logged, 1);
                for (int e = 0; e < EACH; e++) {
                    const REAL apart = to_it[e];
                    // of the class: in T_i, outside it in the cluster that is left, and in the new one
                    int same = 0, pair = 0, fresh = 0;
                    int next = begin, word = words;
#pragma unroll 1
                    do {
                        const int its = lane < WIDTH && next + lane < end ? of.cluster[next + lane] : -1;
                        const unsigned leaves = __ballot_sync(EVERYONE, its == old);
                        const unsigned joins = __ballot_sync(EVERYONE, its == step);
                        const unsigned within = of.inside[(word * EACH + e) * 32 + lane];
                        same += __popc(within);
                        pair += __popc(leaves & ~within);
                        fresh += __popc(joins & ~within);
                    } while (!SINGLE && (word++, next += WIDTH) < end);
                    Members& own = of.inside[((words + (SINGLE ? 0 : (first - begin) / WIDTH)) * EACH + e) * 32 + lane];
                    const unsigned took = own;
                    const bool outside = !(took >> bit & 1);
                    if (apart >= now) {
                        const int gone = outside ? pair : same;
                        sums[e].cost += fixed(now, scale) - fixed(outside ? was : apart, scale);
                        sums[e].joint += of.entropy[fresh + 1] - of.entropy[fresh] + of.entropy[gone - 1] - of.entropy[gone];
                        sums[e].counts += outside ? 1 : 1 << 16 | 1;
                        own = took & ~(1u << bit);
                        atomicAdd(of.left + (step * EACH + e) * 16 + lane / 2, 1u << half);
                    }
                    if (outside) {
                        const int before = atomicSub(of.left + (old * EACH + e) * 16 + lane / 2, 1u << half) >> half & 0xffff;
                        sums[e].clusters += of.entropy[before - 1] - of.entropy[before];
                    }
                    if (logs) {
                        const unsigned taken = __ballot_sync(EVERYONE, !outside);
                        if (lane == 0) of.log_inside[log * EACH + e] = taken;
                    }
                }
                __syncwarp();
                if (lane == 0) {
                    of.near[place] = now;
                    of.cluster[place] = step;
                    if (logs) {
                        of.log_near[log] = was;
                        of.log_place[log] = place;
                        of.log_cluster[log] = old;
                    }
                }
                __syncwarp();
            }
        } while (!SINGLE && (first += WIDTH) < end);
    }
    if (worker < counts.classes)
        for (int e = 0; e < EACH; e++) {
            unsigned* const limbs = total + e * LIMBS + lane;
            add_wide(limbs, sums[e].cost);
            add_wide(limbs + WIDE, sums[e].joint);
            add_wide(limbs + 2 * WIDE, sums[e].clusters);
            atomicAdd(limbs + COUNTS, sums[e].counts);
        }
}

// As it was before the moves of a guess. What was outside T_i still is.
__device__ void move_back(const Tables& of, int step, int lane, int worker, const Counts& counts) {
    if (worker == 0)
        for (int k = lane; k < EACH * 16; k += 32) of.left[step * EACH * 16 + k] = 0;
#pragma unroll 1
    for (int log = 0; log < counts.logged; log++) {
        const int place = of.log_place[log], old = of.log_cluster[log], its_class = of.class_at[place];
        if (its_class % WORKERS != worker) continue;
        const int begin = of.start[its_class], bit = (place - begin) % WIDTH;
        const int word = word_of(its_class, begin) + (place - begin) / WIDTH;
        for (int e = 0; e < EACH; e++) {
            const unsigned taken = of.log_inside[log * EACH + e] >> lane & 1;
            if (!taken) atomicAdd(of.left + (old * EACH + e) * 16 + lane / 2, 1u << lane % 2 * 16);
            of.inside[(word * EACH + e) * 32 + lane] |= taken << bit;
        }
        if (lane == 0) {
            of.near[place] = of.log_near[log];
            of.cluster[place] = old;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) greedy_steps(
    const REAL* __restrict__ distances,  // (size, size), symmetric
    const REAL* __restrict__ tops,       // the largest of the distances is the largest of these
    const i64* __restrict__ begins,      // where each class begins, and the end
    const i64* __restrict__ entropy_of,  // f(0), ..., f(size)
    Slot* messages,     // (classes, blocks), all 0
    char* workspace,    // (blocks, room)
    i64* medoids,       // a cluster each
    i64* found,         // a sample each: its medoid
    REAL* nmi,
    double weight, int size, int classes, int room, int parts)
{
    extern __shared__ __align__(16) char shared[];
    // of a step by its number: so that none is written while a slow warp still reads it
    __shared__ int chosen_at[2], guess_at[2];
    __shared__ Counts counts_at[3][2];  // of the guess, of another choice
    __shared__ u64 true_part;           // sum_c f(n_c)
    char *here = shared, *there = workspace + (i64)blockIdx.x * room;
    Tables of;
    of.sums = take<unsigned>(here, 6 * EACH * LIMBS);
    of.log_near = take<REAL>(here, LOGGED);
    of.log_inside = take<unsigned>(here, LOGGED * EACH);
    of.log_place = take<u16>(here, LOGGED);
    of.log_cluster = take<u16>(here, LOGGED);
    char*& samples = SHARED > 0 ? here : there;
    of.near = take<REAL>(samples, size);
    of.row = take<REAL>(samples, size);
    of.cluster = take<u16>(samples, size);
    of.class_at = take<u16>(samples, size);
    of.start = take<u16>(samples, classes + 1);
    of.moving = take<u16>(samples, classes);
    of.noted = take<unsigned>(samples, classes);
    of.inside = take<Members>(SHARED > 1 ? here : there, (word_of(classes, size) + !SINGLE) * EACH * 32);
    of.entropy = take<i64>(SHARED > 2 ? here : there, size + 1);
    of.left = take<unsigned>(SHARED > 3 ? here : there, classes * EACH * 16);

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, worker = warp - 1;
    REAL top = 0;
    for (int k = lane; k < parts; k += 32) top = max(top, tops[k]);
    const int places = fraction_places(top_of_warp(top), size);
    const double scale = power_of_2(places), unit = power_of_2(-places);
    int own[EACH], column[EACH];
    for (int e = 0; e < EACH; e++) {
        own[e] = (blockIdx.x * EACH + e) * 32 + lane;
        column[e] = min(own[e], size - 1);
    }
#pragma unroll 1
    for (int k = thread; k < 6 * EACH * LIMBS; k += THREADS) of.sums[k] = 0;
#pragma unroll 1
    for (int p = thread; p <= size; p += THREADS) of.entropy[p] = entropy_of[p];
#pragma unroll 1
    for (int p = thread; p < size; p += THREADS) {
        of.near[p] = INFINITE;
        of.cluster[p] = 0;
    }
#pragma unroll 1
    for (int k = thread; k < classes * EACH * 16; k += THREADS) of.left[k] = 0;
    if (thread == 0) {
        of.start[classes] = size;
        true_part = 0;
        guess_at[0] = -1;
        counts_at[0][0] = counts_at[0][1] = {0, 0, 0};
    }
#pragma unroll 1
    for (int c = warp; c < classes; c += WARPS) {
        const int begin = begins[c], end = begins[c + 1];
        if (lane == 0) {
            of.start[c] = begin;
            of.noted[c] = 0;
        }
        for (int p = begin + lane; p < end; p += 32) of.class_at[p] = c;
        for (int first = begin; first < end; first += WIDTH)
            for (int e = 0; e < EACH; e++) {
                const int count = min(end - first, WIDTH), word = word_of(c, begin) + (first - begin) / WIDTH;
                of.inside[(word * EACH + e) * 32 + lane] = EVERYONE >> (32 - count);
            }
    }
    __syncthreads();
#pragma unroll 1
    for (int c = thread; c < classes; c += THREADS) atomicAdd(&true_part, (u64)of.entropy[begins[c + 1] - begins[c]]);
    for (int e = 0; e < EACH; e++) {  // the cost of each candidate as the only medoid
        i64 sum = 0;
#pragma unroll 8
        for (int p = warp; p < size; p += WARPS) sum += fixed(distances[(i64)p * size + column[e]], scale);
        add_wide(of.sums + (5 * EACH + e) * LIMBS + lane, sum);
    }
    __syncthreads();
    i64 cost[EACH], mutual[EACH], both[EACH];  // of warp 0, and so the next two: NMI = 2 mutual / both
    int taken[EACH];
    bool free[EACH];
    for (int e = 0; e < EACH; e++) {
        cost[e] = mutual[e] = 0;
        both[e] = of.entropy[size] - (i64)true_part;
        taken[e] = size;
        free[e] = own[e] < size;
    }

    const unsigned* before = of.sums + 5 * EACH * LIMBS;  // what the last step changed; at first the costs
    int turn = 0;  // step % 3
#pragma unroll 1
    for (int step = 0; step < classes; step++) {
        const int next = turn == 2 ? 0 : turn + 1, guess = guess_at[step % 2];
        Counts* const counts = counts_at[turn];
        unsigned* const sums = of.sums + turn * 2 * EACH * LIMBS;
        // first with the guess, while warp 0 asks; then, where that was not all, with the one chosen
#pragma unroll 1
        for (bool again = false;; again = true) {
            if (warp == 0 && !again) {
                double information[EACH];
                Message best = {0, 0};
                for (int e = 0; e < EACH; e++) {
                    const unsigned* const limbs = before + e * LIMBS + lane;
                    const int joined = limbs[COUNTS] & 0xffff, kept = taken[e] - (limbs[COUNTS] >> 16);
                    const i64 grown = read_wide(limbs + 2 * WIDE) + of.entropy[joined] + of.entropy[kept] - of.entropy[taken[e]];
                    cost[e] += read_wide(limbs);
                    mutual[e] += read_wide(limbs + WIDE) - grown;
                    both[e] -= grown;
                    taken[e] = kept;
                    information[e] = both[e] == 0 ? 1.0 : 2 * (double)mutual[e] / (double)max(both[e], 1ll);
                    // no fused multiply and add: as on the CPU, to the last bit
                    const double margin = __dmul_rn(weight, 1 - information[e]);
                    const double score = __dsub_rn(margin, (double)cost[e] * unit);
                    const Message it = {free[e] ? ordered(score) : 1, 1u + own[e]};
                    if (it.key > best.key) best = it;
                }
                best = best_of_warp(best);
                Slot* const table = messages + (i64)step * gridDim.x;
                if (lane == 0) send(table + blockIdx.x, best);
                Message heard[LISTENED], second;
#pragma unroll
                for (int k = 0; k < LISTENED; k++) heard[k] = {0, lane + 32 * k < gridDim.x ? 0 : NOBODY};
                bool waiting;
#pragma unroll 1
                do {  // all that are missing at a time; the lanes stay together
                    waiting = false;
#pragma unroll
                    for (int k = 0; k < LISTENED; k++)
                        if (missing(heard[k])) heard[k] = receive(table + lane + 32 * k);
#pragma unroll
                    for (int k = 0; k < LISTENED; k++) waiting |= missing(heard[k]);
                } while (__any_sync(EVERYONE, waiting));
                best = second = {0, NOBODY};
#pragma unroll
                for (int k = 0; k < LISTENED; k++) {  // of equal ones the first stays
                    if (heard[k].key > best.key) second = best, best = heard[k];
                    else if (heard[k].key > second.key) second = heard[k];
                }
                const Message chosen = best_of_warp(best);
                if (best.from != chosen.from) second = best;
                second = best_of_warp(second);
                for (int e = 0; e < EACH; e++)
                    if (own[e] + 1 == chosen.from) {
                        free[e] = false;
                        if (step == classes - 1) *nmi = (REAL)information[e];
                    }
                if (lane == 0) {
                    chosen_at[step % 2] = chosen.from - 1;
                    guess_at[(step + 1) % 2] = second.key > 1 ? (int)second.from - 1 : -1;
                    counts_at[next][0] = counts_at[next][1] = {0, 0, 0};
                    if (blockIdx.x == 0) medoids[step] = chosen.from - 1;
                }
            } else if (warp > 0) {
                const int candidate = again ? chosen_at[step % 2] : guess;
                const bool listed = again && candidate == guess;
                const bool other = again && !listed;
                if (candidate >= 0 && !listed)
                    scan(of, distances + (i64)candidate * size, size, thread - 32, 2 * step + 1 + again, counts[other]);
                if (worker == WORKERS - 1 && !again)
                    for (int k = lane; k < 2 * EACH * LIMBS; k += 32) of.sums[next * 2 * EACH * LIMBS + k] = 0;
                __barrier_sync_count(1, 32 * WORKERS);
                if (candidate >= 0 && (again || counts[other].samples <= LOGGED))
                    move(
                        of, distances, column, scale, size, step, lane, worker, counts[other],
                        sums + other * EACH * LIMBS, !again);
            }
            __syncthreads();
            const bool right = chosen_at[step % 2] == guess, tried = guess >= 0 && counts[0].samples <= LOGGED;
            before = sums + !right * EACH * LIMBS;
            if (again || (tried && right)) break;
            if (tried && warp > 0) move_back(of, step, lane, worker, counts[0]);
            __syncthreads();
        }
        turn = next;
    }
    __syncthreads();
    if (blockIdx.x == 0)
        for (int p = thread; p < size; p += THREADS) found[p] = medoids[of.cluster[p]];
}
