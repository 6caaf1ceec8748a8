/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/nccl-log.h"

#include <math.h>
#include <string.h>

#define MAX_WORDS 20
#define N_TIMES 8 /* columns: time, algbw, busbw and #wrong, out of place and in place */

struct _PlanNcclLog
{
  char *file_name;
  char *collective;  /* "all_reduce" and so on, of the present test; NULL: not stated */
  gboolean has_data; /* the present test has printed times */
  gint64 ranks, nodes;
  guint iterations;
  const char *device, *host, *version;
  GHashTable *hosts;     /* of the present test */
  GStringChunk *strings; /* holds the strings that times point to */
  GArray *times;
};

static const struct
{
  const char *name;
  PlanOpKind op;
} collectives[] = {
  { "all_reduce", PLAN_OP_ALL_REDUCE },
  { "all_gather", PLAN_OP_ALL_GATHER },
  { "reduce_scatter", PLAN_OP_REDUCE_SCATTER },
  { "alltoall", PLAN_OP_ALL_TO_ALL },
  { "sendrecv", PLAN_OP_EXCHANGE },
};

static const struct
{
  const char *name;
  PlanDtype dtype;
} types[] = {
  { "float", PLAN_DTYPE_FP32 },    { "half", PLAN_DTYPE_FP16 },     { "bfloat16", PLAN_DTYPE_BF16 },
  { "int8", PLAN_DTYPE_U8 },       { "uint8", PLAN_DTYPE_U8 },      { "int32", PLAN_DTYPE_I32 },
  { "uint32", PLAN_DTYPE_I32 },    { "int64", PLAN_DTYPE_I64 },     { "uint64", PLAN_DTYPE_I64 },
  { "fp8_e4m3", PLAN_DTYPE_E4M3 }, { "fp8_e5m2", PLAN_DTYPE_E5M2 }, { "f8e4m3", PLAN_DTYPE_E4M3 },
  { "f8e5m2", PLAN_DTYPE_E5M2 },
};

PlanNcclLog *
plan_nccl_log_new (const char *name)
{
  PlanNcclLog *self = g_new0 (PlanNcclLog, 1);
  self->file_name = g_strdup (name ? name : "");
  self->hosts = g_hash_table_new (g_str_hash, g_str_equal);
  self->strings = g_string_chunk_new (1024);
  self->times = g_array_new (FALSE, FALSE, sizeof (PlanNcclTime));
  return self;
}

void
plan_nccl_log_free (PlanNcclLog *self)
{
  if (!self)
    return;
  g_free (self->file_name);
  g_free (self->collective);
  g_hash_table_unref (self->hosts);
  g_string_chunk_free (self->strings);
  g_array_unref (self->times);
  g_free (self);
}

/* Begins a test; nothing that was stated for the previous one holds. */
static void
begin_test (PlanNcclLog *self)
{
  if (self->has_data)
    g_clear_pointer (&self->collective, g_free);
  self->has_data = FALSE;
  self->ranks = self->nodes = 0;
  self->iterations = 0;
  self->device = self->host = NULL;
  g_hash_table_remove_all (self->hosts);
}

/* Takes the letters before "_perf", in a path or in the title. */
static void
take_name (PlanNcclLog *self, const char *text)
{
  const char *end = strstr (text, "_perf");
  const char *start = end;
  if (!end)
    return;
  while (start > text && (g_ascii_islower (start[-1]) || start[-1] == '_'))
    start--;
  if (start == end)
    return;
  if (self->has_data)
    begin_test (self);
  g_free (self->collective);
  self->collective = g_strndup (start, (gsize)(end - start));
}

/* Reads "#  Rank  0 Group  0 Pid  3321 on  node01 device  0 [0x0f] NVIDIA H100 80GB HBM3". */
static void
take_rank (PlanNcclLog *self, const char *text)
{
  const char *on = strstr (text, " on "), *device = strstr (text, " device ");
  const char *model = device ? strstr (device, "] ") : NULL;
  if (!on || !device || device < on + strlen (" on "))
    return; /* a line without a host's name */
  g_autofree char *raw = g_strndup (on + strlen (" on "), (gsize)(device - on) - strlen (" on "));
  g_autofree char *host = g_utf8_make_valid (g_strstrip (raw), -1);
  const char *kept = g_string_chunk_insert_const (self->strings, host);
  self->ranks++;
  if (g_hash_table_add (self->hosts, (gpointer)kept))
    self->nodes++;
  if (!self->host)
    self->host = kept;
  if (model && !self->device)
    {
      g_autofree char *name = g_utf8_make_valid (model + 2, -1);
      self->device = g_string_chunk_insert_const (self->strings, g_strstrip (name));
    }
}

static void
take_header (PlanNcclLog *self, const char *text)
{
  const char *version = strstr (text, "nccl-tests version ");
  const char *iterations = strstr (text, "warmup iters:");
  if (version)
    {
      version += strlen ("nccl-tests version ");
      g_autofree char *word = g_strndup (version, strcspn (version, " \t"));
      g_autofree char *valid = g_utf8_make_valid (word, -1);
      self->version = g_string_chunk_insert_const (self->strings, valid);
    }
  else if (strstr (text, "nThread "))
    {
      begin_test (self);
      iterations = iterations ? strstr (iterations + strlen ("warmup iters:"), "iters:") : NULL;
      if (iterations)
        self->iterations = (guint)CLAMP (g_ascii_strtoll (iterations + strlen ("iters:"), NULL, 10),
                                         0, G_MAXINT32);
    }
  else if (strstr (text, " Rank ") && strstr (text, " Pid "))
    take_rank (self, text);
}

static gboolean
read_dtype (const char *word, PlanDtype *out)
{
  for (guint i = 0; i < G_N_ELEMENTS (types); i++)
    if (g_str_equal (types[i].name, word))
      {
        *out = types[i].dtype;
        return TRUE;
      }
  return FALSE;
}

/* The collective, by its name if that is stated. Otherwise a reduction whose bus carries more than
 * the result's size is an all-reduce, and one with less a reduce-scatter; without a reduction it
 * may be one of several. */
static PlanOpKind
find_op (const PlanNcclLog *self, const char *redop, double algbw, double busbw)
{
  for (guint i = 0; i < G_N_ELEMENTS (collectives); i++)
    if (self->collective ? g_str_equal (self->collective, collectives[i].name)
                         : strstr (self->file_name, collectives[i].name) != NULL)
      return collectives[i].op;
  if (self->collective || !redop || g_str_equal (redop, "none") || algbw <= 0)
    return PLAN_N_OPS;
  return busbw > 1.02 * algbw   ? PLAN_OP_ALL_REDUCE
         : busbw < 0.98 * algbw ? PLAN_OP_REDUCE_SCATTER
                                : PLAN_N_OPS;
}

static gboolean
read_number (const char *word, double *out)
{
  char *end;
  *out = g_ascii_strtod (word, &end);
  return end > word && !*end && isfinite (*out) && *out >= 0 && *out < 1e15;
}

/* Reads a line of size, count, type, possibly redop and root, and N_TIMES more columns. */
static void
take_words (PlanNcclLog *self, guint64 line, char **words, guint n)
{
  PlanNcclTime time = { .line = line };
  char **numbers = words + n - N_TIMES;
  double bytes, us[2] = { 0 }, bandwidth[2];
  if (n < N_TIMES + 3 || n > N_TIMES + 5 || !read_number (words[0], &bytes) || bytes < 1
      || !read_dtype (words[2], &time.dtype) || !read_number (numbers[1], &bandwidth[0])
      || !read_number (numbers[2], &bandwidth[1]))
    return;
  for (guint i = 0; i < 2; i++)
    if (read_number (numbers[4 * i], &us[i]))
      time.time_ns[i] = (gint64)(us[i] * 1000 + 0.5);
  if (time.time_ns[0] == 0 && time.time_ns[1] == 0)
    return;
  time.op = find_op (self, n > N_TIMES + 3 ? words[3] : NULL, bandwidth[0], bandwidth[1]);
  time.bytes = (guint64)bytes;
  time.ranks = self->ranks;
  time.nodes = self->nodes;
  time.iterations = self->iterations;
  time.device = self->device;
  time.host = self->host;
  time.version = self->version;
  self->has_data = TRUE;
  g_array_append_val (self->times, time);
}

/* Skips what a launcher puts before each line: "[1,0]<stdout>:", "0: ". */
static char *
skip_prefix (char *text)
{
  char *start = text + strspn (text, " \t");
  const gsize n = strcspn (start, " \t");
  return n > 0 && start[n - 1] == ':' ? start + n : start;
}

void
plan_nccl_log_take (PlanNcclLog *self, guint64 line, const char *text)
{
  g_autofree char *copy = g_strdup (text);
  char *start = skip_prefix (copy);
  char *words[MAX_WORDS];
  guint n = 0;
  start += strspn (start, " \t");
  take_name (self, start);
  if (*start == '#')
    take_header (self, start);
  if (!g_ascii_isdigit (*start))
    return;
  for (char *at = start; *at && n < MAX_WORDS; n++)
    {
      words[n] = at;
      at += strcspn (at, " \t");
      while (*at == ' ' || *at == '\t')
        *at++ = '\0';
    }
  take_words (self, line, words, n);
}

const GArray *
plan_nccl_log_times (const PlanNcclLog *self)
{
  return self->times;
}

guint64
plan_nccl_time_count (const PlanNcclTime *self)
{
  const guint64 element = plan_dtype_bits (self->dtype) / 8;
  const gboolean is_whole = self->op == PLAN_OP_ALL_REDUCE || self->op == PLAN_OP_EXCHANGE;
  const guint64 parts = is_whole ? element : element * (guint64)MAX (self->ranks, 0);
  return parts > 0 && self->bytes % parts == 0 ? self->bytes / parts : 0;
}
