/* Watches that each op of a run on the fake device uses its operands and nothing else: wraps a
 * table of kernels in another one that tells the device the operands of each op. */
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
  gboolean is_whole; /* whether the op has to use all of its bytes */
} FakeOperand;

/* Between fake_watch_begin and the end this host thread's operations may use these bytes alone, of
 * the allocations that the bytes lie in. Reported are: a use of other bytes; a read of a result
 * before it is written; and at the end unused bytes of operands with is_whole. */
void fake_watch_begin (const char *op, const FakeOperand *operands, guint n);
void fake_watch_end (gboolean is_done);

/* Returns kernels that launch those of `kernels`, with each op watched. Only one such table can be
 * used at a time. */
const ExecKernels *watch_kernels (const ExecKernels *kernels);

/* A mistake: the number-th product from now, counted from 1, has so many elements more between the
 * columns of one of its matrices, 'a', 'b' or 'd', than its layout says; or, in a batch, between
 * two matrices: 'A', 'B' or 'D'. */
void fake_cublaslt_stretch (guint number, char matrix, gint64 elements);

/* Mistakes in the number-th of cuDNN's graphs that runs from now, counted from 1. The first: the
 * tensor of an id has so many elements more between neighbours along a dimension. The second: in
 * the shapes of all tensors `from` is replaced by `to`, and tensors stay in their places. */
void fake_cudnn_stretch (guint number, gint64 id, guint dimension, gint64 elements);
void fake_cudnn_resize (guint number, gint64 from, gint64 to);

G_END_DECLS
