/* NCCL's calls that are used here, under NVIDIA's names and values; its user guide says what they
 * do, and tests/fake/real-nccl.c that these are its prototypes. See driver_types.h. */
#pragma once
#include "cuda_runtime_api.h"
#include <limits.h>

#define FAKE_NCCL_RESULTS(X) \
  X (ncclSuccess, 0) \
  X (ncclUnhandledCudaError, 1) \
  X (ncclSystemError, 2) \
  X (ncclInternalError, 3) \
  X (ncclInvalidArgument, 4) \
  X (ncclInvalidUsage, 5) \
  X (ncclRemoteError, 6) \
  X (ncclInProgress, 7)

#define FAKE_NCCL_TYPES(X) \
  X (ncclInt8, 0) \
  X (ncclUint8, 1) \
  X (ncclInt32, 2) \
  X (ncclUint32, 3) \
  X (ncclInt64, 4) \
  X (ncclUint64, 5) \
  X (ncclFloat16, 6) \
  X (ncclFloat32, 7) \
  X (ncclBfloat16, 9)

#define FAKE_NCCL_OPERATIONS(X) \
  X (ncclSum, 0) \
  X (ncclProd, 1) \
  X (ncclMax, 2) \
  X (ncclMin, 3) \
  X (ncclAvg, 4)

/* Macros, in the order of their header: X(name, value) */
#define FAKE_NCCL_FLAGS(X) \
  X (NCCL_UNIQUE_ID_BYTES, 128) \
  X (NCCL_CONFIG_UNDEF_INT, INT_MIN) \
  X (NCCL_WIN_DEFAULT, 0) \
  X (NCCL_WIN_COLL_SYMMETRIC, 1) \
  X (NCCL_WIN_REQUIRED_ALIGNMENT, 4096) \
  X (NCCL_CTA_POLICY_DEFAULT, 0) \
  X (NCCL_CTA_POLICY_ZERO, 2)

/* The fields of ncclConfig_t, in order: X(type, name) */
#define FAKE_NCCL_CONFIG(X) \
  X (size_t, size) \
  X (unsigned int, magic) \
  X (unsigned int, version) \
  X (int, blocking) \
  X (int, cgaClusterSize) \
  X (int, minCTAs) \
  X (int, maxCTAs) \
  X (const char *, netName) \
  X (int, splitShare) \
  X (int, trafficClass) \
  X (const char *, commName) \
  X (int, collnetEnable) \
  X (int, CTAPolicy) \
  X (int, shrinkShare) \
  X (int, nvlsCTAs) \
  X (int, nChannelsPerNetPeer) \
  X (int, nvlinkCentricSched)

#ifndef FAKE_CUDA_REAL_TYPES
#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION (2, 28, 9)

#define FAKE_NCCL_VALUE(name, value) name = value,
typedef enum
{
  FAKE_NCCL_RESULTS (FAKE_NCCL_VALUE)
} ncclResult_t;
typedef enum
{
  FAKE_NCCL_TYPES (FAKE_NCCL_VALUE)
} ncclDataType_t;
typedef enum
{
  FAKE_NCCL_OPERATIONS (FAKE_NCCL_VALUE)
} ncclRedOp_t;
enum
{
  FAKE_NCCL_FLAGS (FAKE_NCCL_VALUE)
};

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct
{
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

#define FAKE_NCCL_FIELD(type, name) type name;
typedef struct ncclConfig_v22800
{
  FAKE_NCCL_CONFIG (FAKE_NCCL_FIELD)
} ncclConfig_t;

/* What is not named here is undefined in their sense: INT_MIN and NULL. */
#define NCCL_CONFIG_INITIALIZER \
  { \
    .size = sizeof (ncclConfig_t), .magic = 0xcafebeef, .version = NCCL_VERSION_CODE, \
    .blocking = INT_MIN, .cgaClusterSize = INT_MIN, .minCTAs = INT_MIN, .maxCTAs = INT_MIN, \
    .splitShare = INT_MIN, .trafficClass = INT_MIN, .collnetEnable = INT_MIN, \
    .CTAPolicy = INT_MIN, .shrinkShare = INT_MIN, .nvlsCTAs = INT_MIN, \
    .nChannelsPerNetPeer = INT_MIN, .nvlinkCentricSched = INT_MIN \
  }
#endif

ncclResult_t ncclGetVersion (int *version);
const char *ncclGetErrorString (ncclResult_t result);
const char *ncclGetLastError (ncclComm_t comm);

/* communicators */
ncclResult_t ncclGetUniqueId (ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig (ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                     ncclConfig_t *config);
ncclResult_t ncclCommSplit (ncclComm_t comm, int color, int key, ncclComm_t *out,
                            ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError (ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize (ncclComm_t comm);
ncclResult_t ncclCommDestroy (ncclComm_t comm);
ncclResult_t ncclCommAbort (ncclComm_t comm);

/* memory */
ncclResult_t ncclMemAlloc (void **out, size_t bytes);
ncclResult_t ncclMemFree (void *memory);
ncclResult_t ncclCommRegister (const ncclComm_t comm, void *memory, size_t bytes, void **out);
ncclResult_t ncclCommDeregister (const ncclComm_t comm, void *handle);
ncclResult_t ncclCommWindowRegister (ncclComm_t comm, void *memory, size_t bytes,
                                     ncclWindow_t *window, int flags);
ncclResult_t ncclCommWindowDeregister (ncclComm_t comm, ncclWindow_t window);

/* collectives */
ncclResult_t ncclAllGather (const void *in, void *out, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter (const void *in, void *out, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce (const void *in, void *out, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend (const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclRecv (void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclGroupStart (void);
ncclResult_t ncclGroupEnd (void);
