// A CUDA kernel on the CPU, to see whether it is right: a block is a process, a thread a thread.
//
// Included before the kernel's source, in which "__shared__" of a named variable reads "static".
// Arguments are the names of files, mapped so that all blocks write to them, or numbers.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using std::max;
using std::min;

#define __CUDA_ARCH__ 900
#define __device__
#define __global__
#define __align__(bytes)
#define __launch_bounds__(...)

struct Index { int x; };
static thread_local Index threadIdx;
static Index blockIdx, gridDim;
alignas(16) char shared[1 << 18];

static std::unique_ptr<std::barrier<>> whole_block, all_but_a_warp;
static std::vector<std::unique_ptr<std::barrier<>>> warps;
static std::vector<unsigned> slots;

static void yield() { sched_yield(); }  // to the blocks that are waited for

static void __syncthreads() { whole_block->arrive_and_wait(); }

static void __barrier_sync_count(unsigned, unsigned) { all_but_a_warp->arrive_and_wait(); }

// What the 32 lanes of the warp have, in their order.
template <class Use> static unsigned together(unsigned own, Use use) {
    const int warp = threadIdx.x / 32;
    slots[threadIdx.x] = own;
    warps[warp]->arrive_and_wait();
    const unsigned result = use(slots.data() + 32 * warp);
    warps[warp]->arrive_and_wait();
    return result;
}

static unsigned __reduce_max_sync(unsigned, unsigned own) {
    return together(own, [](unsigned* all) { return *std::max_element(all, all + 32); });
}

static unsigned __reduce_min_sync(unsigned, unsigned own) {
    return together(own, [](unsigned* all) { return *std::min_element(all, all + 32); });
}

static unsigned __ballot_sync(unsigned, bool own) {
    return together(own, [](unsigned* all) {
        unsigned votes = 0;
        for (int lane = 0; lane < 32; lane++) votes |= all[lane] << lane;
        return votes;
    });
}

static bool __any_sync(unsigned everyone, bool own) { return __ballot_sync(everyone, own); }

template <class T> static T __shfl_sync(unsigned, T own, int lane) {
    unsigned words[(sizeof(T) + 3) / 4];
    std::memcpy(words, &own, sizeof own);
    for (unsigned& word : words) word = together(word, [lane](unsigned* all) { return all[lane]; });
    std::memcpy(&own, words, sizeof own);
    return own;
}

template <class T> static T __shfl_xor_sync(unsigned everyone, T own, int apart) {
    return __shfl_sync(everyone, own, (threadIdx.x % 32) ^ apart);
}

static void __syncwarp() {
    together(0, [](unsigned*) { return 0; });
}

using std::atan2, std::exp, std::expm1, std::log, std::log1p, std::pow, std::sin, std::sqrt;
static int __ffs(unsigned bits) { return __builtin_ffs(bits); }
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <class T> static T atomicAdd(T* at, T value) { return std::atomic_ref<T>(*at).fetch_add(value); }
template <class T> static T atomicSub(T* at, T value) { return __atomic_fetch_sub(at, value, __ATOMIC_RELAXED); }
static unsigned atomicExch(unsigned* at, unsigned value) { return __atomic_exchange_n(at, value, __ATOMIC_RELAXED); }
static long long __double2ll_rz(double x) { return (long long)x; }
static double __dmul_rn(double x, double y) { return x * y; }
static double __dsub_rn(double x, double y) { return x - y; }

template <class To, class From> static To reread(From from) {
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static long long __double_as_longlong(double x) { return reread<long long>(x); }
static double __longlong_as_double(long long x) { return reread<double>(x); }

struct Argument {
    const char* text;
    template <class T> operator T*() const {
        if (std::strcmp(text, "0") == 0) return nullptr;
        const int file = open(text, O_RDWR);
        struct stat about;
        if (file < 0 || fstat(file, &about)) std::abort();
        void* at = about.st_size ? mmap(nullptr, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : nullptr;
        if (at == MAP_FAILED) std::abort();
        return (T*)at;
    }
    operator int() const { return std::stoi(text); }
    operator double() const { return std::stod(text); }
};

// Run so many blocks of so many threads, each of which calls once; false if any failed, or used more
// shared memory than it had.
template <class Call> static bool launch(int blocks, int threads, size_t bytes, Call call) {
    std::vector<pid_t> children;
    for (int block = 0; block < blocks; block++) {
        const pid_t child = fork();
        if (child) {
            children.push_back(child);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        blockIdx.x = block;
        gridDim.x = blocks;
        whole_block = std::make_unique<std::barrier<>>(threads);
        all_but_a_warp = std::make_unique<std::barrier<>>(threads - 32);
        slots.resize(threads);
        for (int warp = 0; warp < threads / 32; warp++) warps.push_back(std::make_unique<std::barrier<>>(32));
        std::vector<std::thread> running;
        for (int thread = 0; thread < threads; thread++)
            running.emplace_back([=] { threadIdx.x = thread; call(); });
        for (auto& each : running) each.join();
        _exit(std::any_of(shared + bytes, std::end(shared), [](char each) { return each != 0; }));
    }
    for (size_t ended = 0; ended < children.size(); ended++) {
        int status;
        if (wait(&status) > 0 && status == 0) continue;
        for (const pid_t child : children) kill(child, SIGKILL);  // they would wait for it forever
        return false;
    }
    return true;
}

template <class... Types, size_t... places>
static void call(void (*kernel)(Types...), const Argument* given, std::index_sequence<places...>) {
    kernel(given[places]...);
}

// The whole program: its words are the number of blocks, the bytes of shared memory of each, and the
// kernel's arguments.
template <class... Types> static int run(void (*kernel)(Types...), int threads, int many, char** words) {
    const std::vector<Argument> given(words + 3, words + many);
    if (given.size() != sizeof...(Types)) return 2;
    const Argument* const first = given.data();
    const auto once = [=] { call(kernel, first, std::index_sequence_for<Types...>()); };
    return launch(std::stoi(words[1]), threads, std::stoul(words[2]), once) ? 0 : 1;
}
