// Where many people start, and what the other kernels are measured against: a two-dimensional grid,
// and a thread for each pixel. compare.py compiles it with T, CHANNEL and COLUMN defined.

extern "C" __global__ void naive(const T* image, T* gray, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    const long long pixels = static_cast<long long>(width) * height;
    image += blockIdx.z * 3 * pixels;
    gray += blockIdx.z * pixels;
    const long long i = static_cast<long long>(y) * width + x;
    const float red = image[i * COLUMN];
    const float green = image[i * COLUMN + CHANNEL];
    const float blue = image[i * COLUMN + 2 * CHANNEL];
    gray[i] = static_cast<T>(0.299f * red + 0.587f * green + 0.114f * blue);
  }
}

extern "C" __global__ void nothing() {}
