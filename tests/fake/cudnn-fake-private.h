/* The fake cuDNN, as its files share it: cudnn-fake.c keeps descriptors, cudnn-fake-run.c runs
 * graphs. */
#pragma once
#include "tests/fake/include/cudnn.h"
#include <glib.h>
G_BEGIN_DECLS

#define FAKE_CUDNN_MAX_TENSORS 32
#define FAKE_CUDNN_ALIGNMENT 256 /* of workspaces */

typedef struct
{
  cudnnBackendDescriptorType_t type;
  GArray *attributes;
  gboolean is_final;
  gboolean is_unfit; /* an engine's configuration: no plan can be made of it */
} FakeCudnnDescriptor;

/* A graph with what it is given; values of the host are taken when it is issued. */
typedef struct
{
  const FakeCudnnDescriptor *graph;
  gint64 n, ids[FAKE_CUDNN_MAX_TENSORS];
  void *pointers[FAKE_CUDNN_MAX_TENSORS];
  float values[FAKE_CUDNN_MAX_TENSORS];
  void *workspace;
} FakeCudnnRun;

/* Keeps the words for cudnnGetLastErrorString; gives the status back. */
cudnnStatus_t fake_cudnn_refuse (cudnnStatus_t status, const char *format, ...)
    G_GNUC_PRINTF (2, 3);

/* An attribute's values, NULL where it was not set; the first of them, a descriptor. */
const void *fake_cudnn_get (const FakeCudnnDescriptor *self, cudnnBackendAttributeName_t name,
                            gint64 *count);
const FakeCudnnDescriptor *fake_cudnn_descriptor (const FakeCudnnDescriptor *self,
                                                  cudnnBackendAttributeName_t name);

/* Whether every operation's tensors fit each other, ids differ, and nothing virtual is read before
 * it is made. */
cudnnStatus_t fake_cudnn_check_graph (const FakeCudnnDescriptor *graph);

/* What 9.19 says (tests/gpu/test-cudnn-ask.c): backwards, heads of over 128 elements are Hopper's
 * alone. */
gboolean fake_cudnn_has_engine (const FakeCudnnDescriptor *graph);

/* Bytes on the device that is set, after what 9.19 says: 256 on Hopper; for gradients of all query
 * heads, before they are added up; elsewhere another image of q's gradient. */
gint64 fake_cudnn_workspace (const FakeCudnnDescriptor *graph);

/* Every tensor that is not virtual must have been given. */
cudnnStatus_t fake_cudnn_take_values (FakeCudnnRun *run);
cudnnStatus_t fake_cudnn_run (FakeCudnnRun *run, cudaStream_t stream);

G_END_DECLS
