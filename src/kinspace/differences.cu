// Squared distances between the rows of two matrices, and their gradient, by differences: exact for
// close rows too, and nothing waits for the number of these, as the form of products must
// (`distances`). A block has a tile of the result, of which each thread has OWN rows and columns.
//
// REAL: the type. THREADS: of a block.

#include "warp.h"

const int TILE = 64, OWN = 4, SIDE = TILE / OWN, STEP = 16, PITCH = TILE + 4;
static_assert(THREADS == SIDE * SIDE, "a thread for each part of a tile");
typedef REAL Strip[STEP][PITCH];  // what a block has of a matrix at a time

// A step of the columns of some rows, turned: (column, row); 0 beyond the end.
__device__ void load(Strip& strip, const REAL* __restrict__ matrix, int top, int rows, int left, int columns) {
    for (int k = threadIdx.x; k < STEP * TILE; k += THREADS) {
        const int column = left + k % STEP, row = top + k / STEP;
        strip[k % STEP][k / STEP] = row < rows && column < columns ? matrix[(i64)row * columns + column] : 0;
    }
}

// The same of a matrix that is turned already, or whose rows are wanted as they are.
__device__ void load_rows(Strip& strip, const REAL* __restrict__ matrix, int top, int rows, int left, int columns) {
    for (int k = threadIdx.x; k < STEP * TILE; k += THREADS) {
        const int row = top + k / TILE, column = left + k % TILE;
        strip[k / TILE][k % TILE] = row < rows && column < columns ? matrix[(i64)row * columns + column] : 0;
    }
}

// ||x_i - y_j||^2
extern "C" __global__ void __launch_bounds__(THREADS) squares_of_differences(
    const REAL* __restrict__ x,   // (rows, dim)
    const REAL* __restrict__ y,   // (columns, dim)
    REAL* __restrict__ squares,   // (rows, columns)
    int rows, int columns, int dim)
{
    __shared__ __align__(16) Strip of_x, of_y;
    const int across = (columns + TILE - 1) / TILE;
    const int top = blockIdx.x / across * TILE, left = blockIdx.x % across * TILE;
    const int down = threadIdx.x / SIDE * OWN, right = threadIdx.x % SIDE * OWN;
    REAL sums[OWN][OWN] = {};
    for (int begin = 0; begin < dim; begin += STEP) {
        load(of_x, x, top, rows, begin, dim);
        load(of_y, y, left, columns, begin, dim);
        __syncthreads();
        REAL parts[OWN][OWN] = {};  // sums of few: a long one loses digits
#pragma unroll
        for (int d = 0; d < STEP; d++)
            for (int r = 0; r < OWN; r++)
                for (int c = 0; c < OWN; c++) {
                    const REAL apart = of_x[d][down + r] - of_y[d][right + c];
                    parts[r][c] += apart * apart;
                }
        for (int r = 0; r < OWN; r++)
            for (int c = 0; c < OWN; c++) sums[r][c] += parts[r][c];
        __syncthreads();
    }
    for (int r = 0; r < OWN; r++)
        for (int c = 0; c < OWN; c++) {
            const int row = top + down + r, column = left + right + c;
            if (row < rows && column < columns) squares[(i64)row * columns + column] = sums[r][c];
        }
}

// 2 sum_j w_ij (x_i - y_j)
extern "C" __global__ void __launch_bounds__(THREADS) pull_of_differences(
    const REAL* __restrict__ weights,  // (rows, columns), or turned
    const REAL* __restrict__ x,        // (rows, dim)
    const REAL* __restrict__ y,        // (columns, dim)
    REAL* __restrict__ pull,           // (rows, dim)
    int rows, int columns, int dim, int turned)
{
    __shared__ __align__(16) Strip of_weights, of_y;
    const int across = (dim + TILE - 1) / TILE;
    const int top = blockIdx.x / across * TILE, left = blockIdx.x % across * TILE;
    const int down = threadIdx.x / SIDE * OWN, right = threadIdx.x % SIDE * OWN;
    REAL own[OWN][OWN], sums[OWN][OWN] = {};
    for (int r = 0; r < OWN; r++)
        for (int c = 0; c < OWN; c++) {
            const int row = top + down + r, column = left + right + c;
            own[r][c] = row < rows && column < dim ? x[(i64)row * dim + column] : 0;
        }
    for (int begin = 0; begin < columns; begin += STEP) {
        if (turned) load_rows(of_weights, weights, begin, columns, top, rows);
        else load(of_weights, weights, top, rows, begin, columns);
        load_rows(of_y, y, begin, columns, left, dim);
        __syncthreads();
        REAL parts[OWN][OWN] = {};
#pragma unroll
        for (int j = 0; j < STEP; j++)
            for (int r = 0; r < OWN; r++)
                for (int c = 0; c < OWN; c++)
                    parts[r][c] += of_weights[j][down + r] * (own[r][c] - of_y[j][right + c]);
        for (int r = 0; r < OWN; r++)
            for (int c = 0; c < OWN; c++) sums[r][c] += parts[r][c];
        __syncthreads();
    }
    for (int r = 0; r < OWN; r++)
        for (int c = 0; c < OWN; c++) {
            const int row = top + down + r, column = left + right + c;
            if (row < rows && column < dim) pull[(i64)row * dim + column] = 2 * sums[r][c];
        }
}
