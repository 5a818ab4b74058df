// What our kernels have in common. Threads are in warps of 32 lanes.

typedef long long i64;

const unsigned EVERYONE = ~0u;  // all lanes of a warp
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

template <class T> __device__ T sum_of_warp(T x) {
    for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(EVERYONE, x, apart);
    return x;
}

template <class T> __device__ T top_of_warp(T x) {
    for (int apart = 16; apart; apart /= 2) x = max(x, __shfl_xor_sync(EVERYONE, x, apart));
    return x;
}

// To divide by a length: infinity for 0, so that the quotient is 0; for tiny ones too, which overflow.
template <class T> __device__ T without_zero(T length, double tiny) { return length <= (T)tiny ? (T)INFINITE : length; }

// The sum over the rows (size, dim) of a class in dimension d, and how many they are; 0 beyond the last
// dimension. For whole warps.
template <class T> __device__ T sum_of_class(
    const T* __restrict__ rows, const i64* __restrict__ classes, int own, int size, int dim, int d, int& count)
{
    const int lane = threadIdx.x % 32;
    T sum = 0;
    count = 0;
    for (int first = 0; first < size; first += 32) {
        const bool member = first + lane < size && classes[first + lane] == own;
        for (unsigned members = __ballot_sync(EVERYONE, member); members; members &= members - 1) {
            const int row = first + __ffs(members) - 1;
            count++;
            if (d < dim) sum += rows[(i64)row * dim + d];
        }
    }
    return sum;
}
