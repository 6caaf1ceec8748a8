/* The prototypes of cublasLt.h, which includes this. */
#pragma once
#include "cublasLt.h"

FAKE_BEGIN_DECLS

cublasStatus_t cublasLtCreate (cublasLtHandle_t *out);
cublasStatus_t cublasLtDestroy (cublasLtHandle_t handle);
size_t cublasLtGetVersion (void);
size_t cublasLtGetCudartVersion (void);
const char *cublasLtGetStatusName (cublasStatus_t status);
const char *cublasLtGetStatusString (cublasStatus_t status);

cublasStatus_t cublasLtMatmulDescCreate (cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                         cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy (cublasLtMatmulDesc_t desc);
cublasStatus_t cublasLtMatmulDescSetAttribute (cublasLtMatmulDesc_t desc,
                                               cublasLtMatmulDescAttributes_t attr,
                                               const void *from, size_t bytes);
cublasStatus_t cublasLtMatmulDescGetAttribute (cublasLtMatmulDesc_t desc,
                                               cublasLtMatmulDescAttributes_t attr, void *to,
                                               size_t bytes, size_t *written);

cublasStatus_t cublasLtMatrixLayoutCreate (cublasLtMatrixLayout_t *out, cudaDataType type,
                                           uint64_t rows, uint64_t cols, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy (cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute (cublasLtMatrixLayout_t layout,
                                                 cublasLtMatrixLayoutAttribute_t attr,
                                                 const void *from, size_t bytes);
cublasStatus_t cublasLtMatrixLayoutGetAttribute (cublasLtMatrixLayout_t layout,
                                                 cublasLtMatrixLayoutAttribute_t attr, void *to,
                                                 size_t bytes, size_t *written);

cublasStatus_t cublasLtMatmulPreferenceCreate (cublasLtMatmulPreference_t *out);
cublasStatus_t cublasLtMatmulPreferenceDestroy (cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute (cublasLtMatmulPreference_t preference,
                                                     cublasLtMatmulPreferenceAttributes_t attr,
                                                     const void *from, size_t bytes);

cublasStatus_t cublasLtMatmulAlgoGetHeuristic (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                               cublasLtMatmulPreference_t preference, int asked,
                                               cublasLtMatmulHeuristicResult_t results[],
                                               int *found);
cublasStatus_t cublasLtMatmulAlgoCheck (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                        const cublasLtMatmulAlgo_t *algo,
                                        cublasLtMatmulHeuristicResult_t *result);
cublasStatus_t cublasLtMatmulAlgoInit (cublasLtHandle_t handle, cublasComputeType_t compute,
                                       cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                       cudaDataType_t c, cudaDataType_t d, int id,
                                       cublasLtMatmulAlgo_t *algo);
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute (cublasLtMatmulAlgo_t *algo,
                                                     cublasLtMatmulAlgoConfigAttributes_t attr,
                                                     const void *from, size_t bytes);
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute (const cublasLtMatmulAlgo_t *algo,
                                                     cublasLtMatmulAlgoConfigAttributes_t attr,
                                                     void *to, size_t bytes, size_t *written);

cublasStatus_t cublasLtMatmul (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                               const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                               const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                               cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                               void *workspace, size_t workspace_bytes, cudaStream_t stream);

FAKE_END_DECLS
