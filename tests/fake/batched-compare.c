/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/batched-compare.h"

#include "exec/cuda/attention-batched.h"
#include "exec/cuda/cuda-check.h"
#include "exec/number/number.h"
#include "planner/schedule/scratch.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

/* The operands of both passes, in host memory and on the device. In latent attention queries, keys
 * and values lie one after the other in the array QKV. */
enum
{
  QKV,
  OUT,
  LSE,
  DOUT,
  DQKV,
  PLACES,
  KEY,
  START,
  N_ARRAYS
};

typedef struct
{
  const BatchedCase *of;
  PlanManner manner;
  PlanDtype dtype[N_ARRAYS];
  guint64 count[N_ARRAYS];
  void *cpu[N_ARRAYS], *gpu[N_ARRAYS], *work;
  guint64 work_bytes;
  cudaStream_t stream;
} Arrays;

static const guint operands[2][5] = { { OUT, LSE, QKV, N_ARRAYS }, { DQKV, DOUT, OUT, LSE, QKV } };

static PlanOpKind
kind_of (const BatchedCase *self, gboolean is_bwd)
{
  if (self->v_dim > 0)
    return is_bwd ? PLAN_OP_LATENT_ATTENTION_BWD : PLAN_OP_LATENT_ATTENTION;
  return is_bwd ? PLAN_OP_ATTENTION_BWD : PLAN_OP_ATTENTION;
}

/* Which operand of the op is scratch. */
static guint
work_of (PlanOpKind kind)
{
  guint i = 0;
  while (plan_op_ref_access (kind, i) != 's')
    i++;
  return i;
}

/* Elements that latent queries, or keys, take in their array: rounded up to pieces of 64. */
static guint64
latent_size (const BatchedCase *self, gint64 dim)
{
  return (guint64)(self->batch * self->seq * self->heads * dim + 63) / 64 * 64;
}

static void
must (int code)
{
  g_autoptr (GError) error = NULL;

  ck_assert_msg (exec_cuda_check (code, "attention", &error), "%s",
                 error != NULL ? error->message : "");
}

BatchedCase
batched_case_random (guint32 seed)
{
  static const gint64 seqs[] = { 1, 2, 7, 17, 33, 64, 129, 200 };
  static const gint64 dims[] = { 8, 5, 16, 64, 80, 128, 256, 20 };
  static const PlanDtype formats[] = { PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, PLAN_DTYPE_FP16 };
  static const gint64 heads[][2] = { { 1, 1 }, { 4, 1 }, { 4, 2 }, { 3, 3 }, { 6, 2 } };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const gint32 which = g_rand_int_range (rand, 0, 5);
  const PlanDtype dtype = formats[g_rand_int_range (rand, 0, 3)];
  BatchedCase self = { .batch = g_rand_int_range (rand, 1, 3),
                       .seq = seqs[g_rand_int_range (rand, 0, 8)],
                       .heads = heads[which][0],
                       .kv_heads = heads[which][1],
                       .dim = dims[g_rand_int_range (rand, 0, 8)],
                       .dtype = dtype };

  self.out = g_rand_boolean (rand) ? dtype : PLAN_DTYPE_FP32;
  self.queries = g_rand_boolean (rand) ? g_rand_int_range (rand, 1, 70) : 0;
  self.window = g_rand_boolean (rand) ? g_rand_int_range (rand, 1, (gint32)self.seq + 2) : 0;
  if (g_rand_int_range (rand, 0, 3) == 0)
    {
      self.v_dim = dims[g_rand_int_range (rand, 0, 8)];
      self.kv_heads = self.heads;
      self.window = 0;
    }
  else if (self.window == 0 && g_rand_boolean (rand))
    self.window = -g_rand_int_range (rand, 1, (gint32)self.seq + 2);
  self.extras = (guint)g_rand_int_range (rand, 0, 16);
  return self;
}

static void
dims_of (const BatchedCase *self, gint64 *out)
{
  const gboolean is_latent = self->v_dim > 0;
  const gint64 dims[] = { self->batch,
                          self->seq,
                          self->heads,
                          is_latent ? self->dim : self->kv_heads,
                          is_latent ? self->v_dim : self->dim,
                          self->seq };

  memcpy (out, dims, sizeof dims);
}

/* Documents of up to 30 tokens. */
static void
fill_places (Arrays *self, GRand *rand)
{
  gint32 *places = self->cpu[PLACES];
  for (guint64 i = 0; i < self->count[PLACES]; i++)
    places[i] = i % (guint64)self->of->seq == 0 || g_rand_int_range (rand, 0, 15) == 0
                        || places[i - 1] == 29
                    ? 0
                    : places[i - 1] + 1;
}

static void
fill (Arrays *self, guint i, GRand *rand)
{
  g_autofree float *values = g_new (float, self->count[i]);

  for (guint64 at = 0; at < self->count[i]; at++)
    values[at] = (float)g_rand_double_range (rand, -2, 2);
  exec_number_narrow (self->cpu[i], self->dtype[i], values, self->count[i]);
}

/* Elements of scratch: room for self->queries of one key head and no more, or where that is 0 what
 * plans give. */
static guint64
work_elements (const BatchedCase *self, PlanOpKind kind, const gint64 *dims)
{
  const guint64 pitch = ((guint64)self->seq + 3) / 4 * 4;
  const gint64 v_dim = self->v_dim > 0 ? self->v_dim : self->dim;
  const guint64 image = ((guint64)(self->seq * self->dim) + 3) / 4 * 4;
  const guint64 v_image = ((guint64)(self->seq * v_dim) + 3) / 4 * 4;

  if (self->queries == 0)
    return plan_scratch_batched_elements (kind, dims);
  return kind == kind_of (self, FALSE) ? (guint64)self->queries * pitch
                                       : 2 * (guint64)self->queries * pitch + image + v_image;
}

/* Whether the case has what its kind of attention may have. */
static gboolean
has (const BatchedCase *self, BatchedExtra extra)
{
  const guint of_latent = BATCHED_BOUNDED | BATCHED_DOCUMENTS | BATCHED_DROPOUT;
  return (self->extras & extra) != 0 && (self->v_dim == 0 || (of_latent & extra) != 0);
}

static void
arrays_init (Arrays *self, const BatchedCase *of, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint64 rows = (guint64)(of->batch * of->seq);
  const gboolean is_latent = of->v_dim > 0;
  const guint64 wide = is_latent ? 2 * latent_size (of, of->dim) + latent_size (of, of->v_dim)
                                 : rows * (guint64)((of->heads + 2 * of->kv_heads) * of->dim);
  const guint64 narrow = rows * (guint64)(of->heads * (is_latent ? of->v_dim : of->dim));

  *self = (Arrays){ .of = of,
                    .manner = { { [PLAN_MANNER_WINDOW] = (double)MAX (of->window, 0),
                                  [PLAN_MANNER_CHUNK] = (double)MAX (-of->window, 0),
                                  [PLAN_MANNER_CAP] = of->extras & BATCHED_BOUNDED ? 1.5 : 0,
                                  [PLAN_MANNER_ALIBI] = has (of, BATCHED_SLOPES) ? 1 : 0,
                                  [PLAN_MANNER_RATE] = 0.25 } },
                    .dtype = { of->dtype, of->out, PLAN_DTYPE_FP32, of->dtype, of->out,
                               PLAN_DTYPE_I32, PLAN_DTYPE_I32, PLAN_DTYPE_I64 },
                    .count = { wide, narrow, rows * (guint64)of->heads, narrow, wide, rows,
                               PLAN_RANDOM_KEY, 1 } };
  for (guint i = 0; i < N_ARRAYS; i++)
    {
      const guint64 bytes = plan_dtype_bytes (self->dtype[i], self->count[i]);

      self->cpu[i] = g_malloc0 (bytes);
      if (i == QKV || i == DOUT)
        fill (self, i, rand);
      if (i == PLACES)
        fill_places (self, rand);
      if (i == KEY || i == START) /* any bytes will do */
        memset (self->cpu[i], 0x35 + (int)i, bytes);
      must ((int)cudaMalloc (&self->gpu[i], bytes));
      must ((int)cudaMemcpy (self->gpu[i], self->cpu[i], bytes, cudaMemcpyHostToDevice));
    }
  must ((int)cudaStreamCreateWithFlags (&self->stream, cudaStreamNonBlocking));
}

static void
arrays_clear (Arrays *self)
{
  must ((int)cudaStreamDestroy (self->stream));
  for (guint i = 0; i < N_ARRAYS; i++)
    {
      g_free (self->cpu[i]);
      must ((int)cudaFree (self->gpu[i]));
    }
}

/* Sets an operand, or in latent attention the three that lie in one array. Returns how many it has
 * set. */
static guint
set_operand (const Arrays *self, void *const arrays[N_ARRAYS], guint array, guint first,
             ExecArgs *out)
{
  const BatchedCase *of = self->of;
  const gboolean is_of_three = of->v_dim > 0 && (array == QKV || array == DQKV);
  const guint64 size = latent_size (of, of->dim);

  for (guint i = 0; i < (is_of_three ? 3u : 1u); i++)
    {
      out->ptr[first + i]
          = (guint8 *)arrays[array] + plan_dtype_bytes (self->dtype[array], i * size);
      out->dtype[first + i] = self->dtype[array];
    }
  return first + (is_of_three ? 3 : 1);
}

static void
set_extra (const Arrays *self, void *const arrays[N_ARRAYS], guint operand, ExecArgs *out)
{
  static const struct
  {
    const char *name;
    BatchedExtra extra;
    guint array;
  } extras[] = { { "places", BATCHED_DOCUMENTS, PLACES },
                 { "key", BATCHED_DROPOUT, KEY },
                 { "start", BATCHED_DROPOUT, START } };
  const char *name = plan_op_ref_name (out->op->kind, operand);
  for (guint i = 0; i < G_N_ELEMENTS (extras); i++)
    if (has (self->of, extras[i].extra) && strcmp (name, extras[i].name) == 0)
      {
        out->ptr[operand] = arrays[extras[i].array];
        out->dtype[operand] = self->dtype[extras[i].array];
      }
}

static void
args_of (const Arrays *self, void *const arrays[N_ARRAYS], PlanOp *op, gboolean is_bwd,
         ExecArgs *out)
{
  guint next = 0;

  *out = (ExecArgs){ .op = op, .manner = &self->manner };
  memset (op, 0, sizeof *op);
  op->kind = kind_of (self->of, is_bwd);
  dims_of (self->of, op->dims);
  for (guint i = 0; i < 5 && operands[is_bwd][i] < N_ARRAYS; i++)
    next = set_operand (self, arrays, operands[is_bwd][i], next, out);
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    set_extra (self, arrays, i, out);
}

/* Runs both passes by the CPU's kernels; the backward pass reads the results of the forward
 * pass. */
static void
run_on_cpu (const Arrays *self)
{
  for (guint is_bwd = 0; is_bwd < 2; is_bwd++)
    {
      PlanOp op;
      ExecArgs args;

      args_of (self, self->cpu, &op, is_bwd != 0, &args);
      g_autofree float *work
          = g_new (float, plan_scratch_elements (op.kind, op.dims, PLAN_DTYPE_FP32) + 1);
      args.ptr[work_of (op.kind)] = work;
      exec_kernels_cpu.run[op.kind](&args);
    }
}

static void
launch (const ExecArgs *args, cudaStream_t stream)
{
  switch ((int)args->op->kind)
    {
    case PLAN_OP_ATTENTION:
      must (exec_cuda_batched_attention (args, stream));
      return;
    case PLAN_OP_ATTENTION_BWD:
      must (exec_cuda_batched_attention_bwd (args, stream));
      return;
    case PLAN_OP_LATENT_ATTENTION:
      must (exec_cuda_batched_latent (args, stream));
      return;
    default:
      must (exec_cuda_batched_latent_bwd (args, stream));
    }
}

static double
time_calls (const ExecArgs *args, cudaStream_t stream, guint repeats)
{
  cudaEvent_t begin, end;
  float ms = 0;

  must ((int)cudaEventCreate (&begin));
  must ((int)cudaEventCreate (&end));
  must ((int)cudaEventRecord (begin, stream));
  for (guint i = 0; i < repeats; i++)
    launch (args, stream);
  must ((int)cudaEventRecord (end, stream));
  must ((int)cudaEventSynchronize (end));
  must ((int)cudaEventElapsedTime (&ms, begin, end));
  must ((int)cudaEventDestroy (begin));
  must ((int)cudaEventDestroy (end));
  return (double)ms / repeats;
}

static void
run_on_gpu (const Arrays *self, gboolean is_bwd, guint repeats, FILE *out)
{
  PlanOp op;
  ExecArgs args;

  args_of (self, self->gpu, &op, is_bwd, &args);
  args.scratch_bytes = sizeof (float) * work_elements (self->of, op.kind, op.dims);
  must ((int)cudaMalloc (&args.ptr[work_of (op.kind)], args.scratch_bytes));
  launch (&args, self->stream);
  if (repeats > 0)
    {
      const double ms = time_calls (&args, self->stream, repeats);
      const BatchedCase *c = self->of;
      const double product = (double)(c->batch * c->heads * c->dim) * (double)(c->seq * c->seq);

      fprintf (out,
               "# %s by batches, %s: %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " %" G_GINT64_FORMAT
               "/%" G_GINT64_FORMAT " heads of %" G_GINT64_FORMAT ": %.3f ms %.0f TFLOP/s\n",
               plan_op_name (op.kind), plan_dtype_name (c->dtype), c->batch, c->seq, c->heads,
               c->kv_heads, c->dim, ms, (is_bwd ? 5 : 2) * product / ms / 1e9);
    }
  must ((int)cudaStreamSynchronize (self->stream));
  must ((int)cudaFree (args.ptr[work_of (op.kind)]));
}

/* The norm of the difference of two arrays, as a share of the norm of the expected one. */
static double
distance (const void *is, const void *should_be, PlanDtype dtype, guint64 count)
{
  g_autofree float *a = g_new (float, count), *b = g_new (float, count);
  double apart = 0, all = 0;

  exec_number_widen (a, is, dtype, count);
  exec_number_widen (b, should_be, dtype, count);
  for (guint64 i = 0; i < count; i++)
    {
      apart += pow ((double)a[i] - (double)b[i], 2);
      all += pow ((double)b[i], 2);
    }
  return isnan (apart) ? INFINITY : all > 0 ? sqrt (apart / all) : sqrt (apart);
}

static void
compare (const Arrays *self, guint i, double limit)
{
  const guint64 bytes = plan_dtype_bytes (self->dtype[i], self->count[i]);
  g_autofree guint8 *found = g_malloc (bytes);
  const BatchedCase *c = self->of;

  must ((int)cudaMemcpy (found, self->gpu[i], bytes, cudaMemcpyDeviceToHost));
  const double apart = distance (found, self->cpu[i], self->dtype[i], self->count[i]);
  ck_assert_msg (apart <= limit,
                 "array %u of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT ", %" G_GINT64_FORMAT
                 "/%" G_GINT64_FORMAT " heads of %" G_GINT64_FORMAT
                 " in %s and %s, room for %" G_GINT64_FORMAT ", window %" G_GINT64_FORMAT
                 ": off by %g, at most %g",
                 i, c->batch, c->seq, c->heads, c->kv_heads, c->dim, plan_dtype_name (c->dtype),
                 plan_dtype_name (c->out), c->queries, c->window, apart, limit);
}

static void *
copy_of (const Arrays *self, guint i)
{
  const guint64 bytes = plan_dtype_bytes (self->dtype[i], self->count[i]);
  void *copy = g_malloc (bytes);

  must ((int)cudaMemcpy (copy, self->gpu[i], bytes, cudaMemcpyDeviceToHost));
  return copy;
}

/* Runs a pass once more, which must give the same bits. */
static void
repeat_pass (const Arrays *self, gboolean is_bwd)
{
  const guint result = is_bwd ? DQKV : OUT;
  g_autofree void *first = copy_of (self, result);

  run_on_gpu (self, is_bwd, 0, NULL);
  g_autofree void *second = copy_of (self, result);
  ck_assert_mem_eq (first, second, plan_dtype_bytes (self->dtype[result], self->count[result]));
}

/* Bounds: both factors of the second products are rounded once to their format, as the results may
 * be; in fp32 only the order of sums and exp differ. */
void
batched_compare (const BatchedCase *self, guint repeats, FILE *out)
{
  const double unit = self->dtype == PLAN_DTYPE_BF16   ? 0x1p-8
                      : self->dtype == PLAN_DTYPE_FP16 ? 0x1p-11
                                                       : 0x1p-19;
  Arrays arrays;

  arrays_init (&arrays, self, 1);
  ck_assert (exec_cuda_batched_attention_open (NULL));
  run_on_cpu (&arrays);
  run_on_gpu (&arrays, FALSE, repeats, out);
  compare (&arrays, LSE, 0x1p-20);
  compare (&arrays, OUT, unit);
  repeat_pass (&arrays, FALSE);
  run_on_gpu (&arrays, TRUE, repeats, out);
  compare (&arrays, DQKV, 2 * unit);
  repeat_pass (&arrays, TRUE);
  exec_cuda_batched_attention_close ();
  arrays_clear (&arrays);
}
