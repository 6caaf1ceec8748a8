/* Watches that each op of a run on the fake device uses what its operands are, and nothing else: a
 * table of kernels around another one, and what it tells the device. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *name;
  const void *at;
  guint64 bytes;
  gboolean is_read, is_written;
  gboolean is_whole; /* all of its bytes are used */
} FakeOperand;

/* Between them this host thread's operations use these bytes alone, of the allocations that they
 * lie in; a use of others is reported, a read of what is written first, and once it is done what
 * is left of whole ones. */
void fake_watch_begin (const char *op, const FakeOperand *operands, guint n);
void fake_watch_end (gboolean is_done);

/* Launches what `kernels` launches, each op watched. One at a time. */
const ExecKernels *watch_kernels (const ExecKernels *kernels);

/* The number-th product from now, from 1, has so many elements more between the columns of one of
 * its matrices, 'a', 'b' or 'd', than its layout says; or, of a batch, between two matrices: 'A',
 * 'B' or 'D'. */
void fake_cublaslt_stretch (guint number, char matrix, gint64 elements);

/* In the number-th of cuDNN's graphs that runs from now, from 1: the tensor of an id has so many
 * elements more between neighbours along a dimension; or all tensors are as of a shape that has
 * `to` of what it has `from` of, in the same places. */
void fake_cudnn_stretch (guint number, gint64 id, guint dimension, gint64 elements);
void fake_cudnn_resize (guint number, gint64 from, gint64 to);

G_END_DECLS
