/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm.h"
#include "exec/cpu/pool.h"
#include "exec/number/number.h"
#include "planner/base/error.h"

#include <math.h>
#include <string.h>

/* Elements that are summed at once, so that they stay in the first-level cache. */
#define BLOCK 256

/* Elements of the part of a sum that one of a rank's threads computes. */
#define PART 16384

typedef struct
{
  void *out;
  const void *const *in;
  guint ranks;
  guint64 count;
  PlanDtype dtype;
} Sum;

static void
sum_part (gpointer data, guint64 part, guint worker)
{
  const Sum *self = data;
  const guint64 end = MIN ((part + 1) * PART, self->count);
  float sum[BLOCK], term[BLOCK];

  for (guint64 at = part * PART; at < end; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, end - at), offset = plan_dtype_bytes (self->dtype, at);

      exec_number_widen (sum, (const guint8 *)self->in[0] + offset, self->dtype, n);
      for (guint rank = 1; rank < self->ranks; rank++)
        {
          exec_number_widen (term, (const guint8 *)self->in[rank] + offset, self->dtype, n);
          for (guint64 i = 0; i < n; i++)
            sum[i] += term[i];
        }
      exec_number_narrow ((guint8 *)self->out + offset, self->dtype, sum, n);
    }
}

void
exec_comm_sum (void *out, const void *const *in, guint ranks, guint64 count, PlanDtype dtype)
{
  Sum self = { out, in, ranks, count, dtype };

  if (ranks == 1)
    memmove (out, in[0], plan_dtype_bytes (dtype, count));
  else
    exec_pool_run ((count + PART - 1) / PART, G_MAXUINT, sum_part, &self);
}

void
exec_comm_max (void *out, const void *const *in, guint ranks, guint64 count, PlanDtype dtype)
{
  float max[BLOCK], term[BLOCK];

  for (guint64 at = 0; at < count; at += BLOCK)
    {
      guint64 n = MIN (BLOCK, count - at), offset = plan_dtype_bytes (dtype, at);

      exec_number_widen (max, (const guint8 *)in[0] + offset, dtype, n);
      for (guint rank = 1; rank < ranks; rank++)
        {
          exec_number_widen (term, (const guint8 *)in[rank] + offset, dtype, n);
          for (guint64 i = 0; i < n; i++)
            if (!(term[i] <= max[i]) && !isnan (max[i]))
              max[i] = term[i];
        }
      exec_number_narrow ((guint8 *)out + offset, dtype, max, n);
    }
}

/* --- groups ------------------------------------------------------------------------------- */

typedef struct
{
  char *name;
  guint size, stride;
  ExecComm *comm; /* may be the communicator that this is a group of */
} ExecCommGroup;

static void
group_free (gpointer data)
{
  ExecCommGroup *group = data;

  g_free (group->name);
  g_free (group);
}

/* Whether the communicator of all ranks serves as one of its own groups already. `out_made` is set
 * if a group of this name, size and stride exists. */
static gboolean
find_group (const ExecComm *self, const char *name, guint size, guint stride, ExecComm **out_made)
{
  gboolean is_lent = FALSE;

  for (guint i = 0; i < self->groups->len; i++)
    {
      const ExecCommGroup *made = self->groups->pdata[i];

      is_lent |= made->comm == self;
      if (made->size == size && made->stride == stride && g_str_equal (made->name, name))
        *out_made = made->comm;
    }
  return is_lent;
}

guint
exec_comm_group_of (guint rank, guint size, guint stride)
{
  return rank / (size * stride) * stride + rank % stride;
}

ExecComm *
exec_comm_group (ExecComm *self, const char *name, guint size, guint stride, GError **error)
{
  ExecComm *comm = NULL;
  ExecCommGroup *group;
  gboolean is_lent;

  if (size == 0 || stride == 0 || self->ranks % ((guint64)size * stride) != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%u ranks cannot be split into groups of %u that are %u apart", self->ranks,
                   size, stride);
      return NULL;
    }
  if (self->groups == NULL)
    self->groups = g_ptr_array_new_with_free_func (group_free);
  is_lent = find_group (self, name, size, stride, &comm);
  if (comm != NULL)
    return comm;
  /* A group of one rank waits for nobody, so it may use the communicator that another one uses. */
  comm = size == self->ranks && (!is_lent || size == 1)
             ? self
             : self->ops->group (self, size, stride, error);
  if (comm == NULL)
    return NULL;
  comm->timeout_s = self->timeout_s;
  comm->placement = self->placement;
  group = g_new (ExecCommGroup, 1);
  *group = (ExecCommGroup){ g_strdup (name), size, stride, comm };
  g_ptr_array_add (self->groups, group);
  return comm;
}

guint
exec_comm_behind (const ExecComm *self, guint distance)
{
  return (self->rank + self->ranks - distance % self->ranks) % self->ranks;
}

guint
exec_comm_ahead (const ExecComm *self, guint distance)
{
  return (self->rank + distance) % self->ranks;
}

void
exec_comm_close_groups (ExecComm *self)
{
  for (guint i = 0; self->groups != NULL && i < self->groups->len; i++)
    {
      const ExecCommGroup *made = self->groups->pdata[i];

      if (made->comm != self)
        made->comm->ops->close (made->comm);
    }
  g_clear_pointer (&self->groups, g_ptr_array_unref);
}

/* Whether an environment variable gives a number of processes above 1. */
static gboolean
is_many (const char *variable)
{
  const char *text = g_getenv (variable);

  return text != NULL && g_ascii_strtoull (text, NULL, 10) > 1;
}

gboolean
exec_comm_mpi_is_launched (void)
{
  if (is_many ("OMPI_COMM_WORLD_SIZE") || is_many ("PMI_SIZE"))
    return TRUE;

  /* A PMIx server tells each process its rank only; the number of ranks is in srun's variables. */
  return g_getenv ("PMIX_RANK") != NULL
         && (is_many ("SLURM_STEP_NUM_TASKS") || is_many ("SLURM_NTASKS"));
}

/* --- one rank ----------------------------------------------------------------------------- */

typedef struct
{
  ExecComm comm;
  char *reason; /* why it was aborted; NULL: it was not */
} SelfComm;

static gboolean
self_check (ExecComm *comm, GError **error)
{
  const SelfComm *self = (const SelfComm *)comm;

  if (self->reason == NULL)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "rank 0 failed: %s", self->reason);
  return FALSE;
}

static gboolean
self_copy (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype, void *stream,
           GError **error)
{
  if (!self_check (comm, error))
    return FALSE;
  if (out != in)
    memmove (out, in, plan_dtype_bytes (dtype, count));
  return TRUE;
}

static gboolean
self_exchange (ExecComm *comm, void *out, const void *in, guint64 count, PlanDtype dtype,
               guint distance, void *stream, GError **error)
{
  return self_copy (comm, out, in, count, dtype, stream, error);
}

static gboolean
self_all_reduce (ExecComm *comm, void *buf, guint64 count, PlanDtype dtype, void *stream,
                 GError **error)
{
  return self_check (comm, error);
}

static void
self_abort (ExecComm *comm, const char *why)
{
  SelfComm *self = (SelfComm *)comm;

  if (self->reason == NULL)
    self->reason = g_strdup (why);
}

static void
self_close (ExecComm *comm)
{
  SelfComm *self = (SelfComm *)comm;

  exec_comm_close_groups (comm);
  g_free (self->reason);
  g_free (self);
}

static const ExecCommOps self_ops = {
  .name = "self",
  .summary = "one rank",
  .has_graphs = TRUE,
  .all_gather = self_copy,
  .reduce_scatter = self_copy,
  .all_to_all = self_copy,
  .exchange = self_exchange,
  .all_reduce = self_all_reduce,
  .all_reduce_max = self_all_reduce,
  .barrier = self_check,
  .check = self_check,
  .abort = self_abort,
  .close = self_close,
};

ExecComm *
exec_comm_self_open (void)
{
  SelfComm *self = g_new0 (SelfComm, 1);

  self->comm = (ExecComm){ .ops = &self_ops, .rank = 0, .ranks = 1 };
  return &self->comm;
}
