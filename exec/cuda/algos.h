/* ExecCudaAlgos: remembers which of cuBLASLt's algorithms was the fastest for a product, per model
 * of GPU and version of cuBLASLt. These are lines of text in a file, to which any number of
 * processes may append. A line that does not parse is ignored, and the algorithms of that product
 * are timed again. */
#pragma once
#include <cublasLt.h>
#include <glib.h>
G_BEGIN_DECLS

/* What identifies a product where an algorithm is chosen for it. There is no padding, because keys
 * are compared byte by byte. */
typedef struct
{
  gint64 m, n, k;
  guint32 workspace_mib;
  guint16 sms;        /* SMs that the product may use; 0: all */
  guint8 layout;      /* as in the op list, by how the factors lie in memory */
  guint8 accumulates; /* out += product */
  guint8 dtype[4]; /* of out, a, b and bias (PLAN_N_DTYPES: none), wherever scales of blocks lie */
  guint8 alignment[4]; /* of the four addresses: see exec_cuda_lt_alignment */
  guint8 is_deterministic;
  guint8 is_foreign; /* cuBLASLt cannot use the scales of a factor's blocks */
  guint8 varies;     /* m (layout 2: k) differs from call to call and is rounded up here */
  guint8 unused[5];
} ExecCudaProduct;

guint exec_cuda_product_hash (gconstpointer product);
gboolean exec_cuda_product_equal (gconstpointer a, gconstpointer b);

/* Finds the algorithm of a product; FALSE: none is known. Any thread may call find and add. */
gboolean exec_cuda_algos_find (const ExecCudaProduct *product, cublasLtMatmulAlgo_t *out_algo);
void exec_cuda_algos_add (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo);

/* Prints and parses one line of the file, without its newline. The caller frees the line. Parsing
 * returns FALSE for a line that exec_cuda_algos_print does not make. */
char *exec_cuda_algos_print (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo);
gboolean exec_cuda_algos_parse (const char *line, ExecCudaProduct *out_product,
                                cublasLtMatmulAlgo_t *out_algo);

G_END_DECLS
