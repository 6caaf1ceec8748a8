/* PlanStack: how a framework behaves, as data.
 *
 * Lowering and the memory model read this record and never the framework's name. */
#pragma once
#include "planner/cluster.h"
#include "planner/plan.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *name;
  gint64 newest; /* yyyymmdd: the version meant when none is given */
  const char *source;
  gint64 vocab_multiple;         /* vocabulary is padded to this, times tp */
  gint64 comm_unit_floor;        /* elements; least communication unit when it is `auto` */
  gboolean prefetches_past_head; /* the output layer gathers units nobody needs */
  gboolean casts_grads; /* the optimizer reads a copy of the gradients in the main weights' format
                           where theirs is another; it lives until gradients are next zeroed */
  gboolean recomputes_outputs;   /* recomputing a module computes its output again, for nothing */
  gboolean separate_loss_image;  /* a second fp32 image of the logits in the loss */
  gboolean needs_kernel_scratch; /* kernels take fp32 scratch from the schedule (CPU) */
  guint64 allocation_bytes;      /* every allocation is rounded up to this */
  gboolean caching_allocator;    /* reserved memory follows a caching allocator, else an arena */
  guint64 fixed_bytes;   /* live all the time and in no buffer: workspaces, tables, metadata */
  guint64 context_bytes; /* device memory outside the allocator: context and libraries */
  gint64 launch_ns;      /* host time to issue one op */
} PlanStack;

/* The stack a plan names; UNSUPPORTED where it is known and not built yet. */
const PlanStack *plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error);

gint64 plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp);

G_END_DECLS
