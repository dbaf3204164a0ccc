// Names that torch's CUDA headers take from cuBLAS, cuSPARSE and cuSOLVER, for toolkits that come without these
// libraries. The handles are opaque pointers in the libraries' own headers too, so nothing can differ; a kernel
// that calls a function of theirs does not compile, and then needs the real headers.
#ifndef KERNELGEN_CUDA_STANDINS
#define KERNELGEN_CUDA_STANDINS

struct cublasContext;
struct cublasLtContext;
struct cusolverDnContext;
struct cusparseContext;
struct cusparseMatDescr;
typedef struct cublasContext *cublasHandle_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct cusparseContext *cusparseHandle_t;
typedef struct cusparseMatDescr *cusparseMatDescr_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_SUPPORTED = 15 } cublasStatus_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0, CUSPARSE_STATUS_NOT_SUPPORTED = 10 } cusparseStatus_t;
typedef enum {
  CUSOLVER_STATUS_SUCCESS = 0,
  CUSOLVER_STATUS_INVALID_VALUE = 3,
  CUSOLVER_STATUS_NOT_SUPPORTED = 9
} cusolverStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;

#endif
