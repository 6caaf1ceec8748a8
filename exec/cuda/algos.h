/* ExecCudaAlgos: which algorithm was the fastest for a product, on one GPU by one version of
 * cuBLASLt: lines of text in a file, which any number of processes may add to. A line that says
 * nothing sensible is as if it were not there: the product is tried again. */
#pragma once
#include <cublasLt.h>
#include <glib.h>
G_BEGIN_DECLS

/* What a product is, as far as the choice of an algorithm depends on it. No padding: keys are
 * compared byte by byte. */
typedef struct
{
  gint64 m, n, k;
  guint32 workspace_mib;
  guint16 sms;         /* that it may use; 0: all */
  guint8 layout;       /* of the op list, as factors lie in memory */
  guint8 accumulates;  /* out += product */
  guint8 dtype[4];     /* out, a, b, bias; PLAN_N_DTYPES: no bias; with blocks, however they lie */
  guint8 alignment[4]; /* of their addresses, in bytes; 0: 256 or more */
  guint8 is_deterministic;
  guint8 is_foreign; /* scales of blocks are not where cuBLASLt reads them */
  guint8 unused[6];
} ExecCudaProduct;

guint exec_cuda_product_hash (gconstpointer product);
gboolean exec_cuda_product_equal (gconstpointer a, gconstpointer b);

/* FALSE: not known. Any thread may call these. */
gboolean exec_cuda_algos_find (const ExecCudaProduct *product, cublasLtMatmulAlgo_t *out_algo);
void exec_cuda_algos_add (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo);

/* One line of the file, without its end; parse is FALSE for what print did not write. */
char *exec_cuda_algos_print (const ExecCudaProduct *product, const cublasLtMatmulAlgo_t *algo);
gboolean exec_cuda_algos_parse (const char *line, ExecCudaProduct *out_product,
                                cublasLtMatmulAlgo_t *out_algo);

G_END_DECLS
