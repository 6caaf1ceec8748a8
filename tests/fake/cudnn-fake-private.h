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

/* A graph with its tensors' memory. Values in host memory are read when the graph is issued. */
typedef struct
{
  const FakeCudnnDescriptor *graph;
  gint64 n, ids[FAKE_CUDNN_MAX_TENSORS];
  void *pointers[FAKE_CUDNN_MAX_TENSORS];
  float values[FAKE_CUDNN_MAX_TENSORS];
  void *workspace;
} FakeCudnnRun;

/* Keeps the message for cudnnGetLastErrorString and returns the status. */
cudnnStatus_t fake_cudnn_refuse (cudnnStatus_t status, const char *format, ...)
    G_GNUC_PRINTF (2, 3);

/* The first returns an attribute's values, NULL where it was not set; the second the first of these
 * values, a descriptor. */
const void *fake_cudnn_get (const FakeCudnnDescriptor *self, cudnnBackendAttributeName_t name,
                            gint64 *count);
const FakeCudnnDescriptor *fake_cudnn_descriptor (const FakeCudnnDescriptor *self,
                                                  cudnnBackendAttributeName_t name);

/* Whether every operation's tensors fit each other, ids differ, and nothing virtual is read before
 * it is made. */
cudnnStatus_t fake_cudnn_check_graph (const FakeCudnnDescriptor *graph);

/* Whether there is an engine for the graph, as cuDNN 9.19 answers (tests/gpu/test-cudnn-ask.c): the
 * backward pass of heads of more than 128 elements runs on Hopper alone. */
gboolean fake_cudnn_has_engine (const FakeCudnnDescriptor *graph);

/* Bytes of workspace on the current device, as cuDNN 9.19 asks for them: 256 on Hopper, and room
 * for the gradients of keys and values of all query heads before these are added up; elsewhere also
 * for a second image of the gradient of queries. */
gint64 fake_cudnn_workspace (const FakeCudnnDescriptor *graph);

/* fake_cudnn_take_values takes the values of the variant pack, and refuses where a tensor is
 * missing that is not virtual; fake_cudnn_run then runs the graph. */
cudnnStatus_t fake_cudnn_take_values (FakeCudnnRun *run);
cudnnStatus_t fake_cudnn_run (FakeCudnnRun *run, cudaStream_t stream);

G_END_DECLS
