/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost/timings.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <stdlib.h>
#include <string.h>

#define MAX_AXES 3

/* Most points of a grid. Where more would be needed, the timed sizes were not chosen as a grid. */
#define MAX_POINTS 4096

/* Largest dim, and largest product of all dims of an op. */
#define MAX_SIZE (G_GINT64_CONSTANT (1) << 50)

#define MAX_NODES 1000000

/* What an op is apart from its sizes (key), its sizes (at), and the number of units that its time
 * is proportional to. */
typedef struct
{
  struct
  {
    gint64 kind, nodes, dtype[PLAN_MAX_REFS], dims[PLAN_MAX_DIMS];
  } key;
  guint ranks, n_axes;
  double at[MAX_AXES], units;
} Place;

/* The times of ops with one key beside one number of ranks. Points are ordered by axis, the last
 * axis fastest. */
typedef struct
{
  Place place;
  GArray *axis[MAX_AXES]; /* double: the sizes, rising */
  guint n_points;
  double *ns; /* per point: nanoseconds per unit */
  gboolean *is_timed;
} Grid;

struct _SimTimings
{
  GPtrArray *grids; /* Grid: sorted by key, then ranks */
};

/* --- an op's place ------------------------------------------------------------------------ */

static void
add_axis (Place *self, gint64 size)
{
  self->at[self->n_axes++] = (double)MAX (size, 1);
}

/* Bytes of all operands of an op. */
static gint64
traffic (const SimTiming *timing)
{
  PlanOp op;
  double bytes = 0;
  plan_op_init (&op, timing->kind, PLAN_STREAM_COMPUTE);
  memcpy (op.dims, timing->dims, sizeof op.dims);
  for (guint i = 0; i < plan_op_n_refs (op.kind); i++)
    op.refs[i].array = timing->dtype[i] < 0 ? -1 : 0;
  for (guint i = 0; i < plan_op_n_refs (op.kind); i++)
    if (timing->dtype[i] >= 0)
      bytes += (double)plan_dtype_bytes ((PlanDtype)timing->dtype[i],
                                         plan_op_ref_elements (&op, i, timing->ranks));
  return (gint64)bytes;
}

static void
add_axes (Place *self, const SimTiming *timing)
{
  const gint64 *d = timing->dims;
  switch (timing->kind)
    {
    case PLAN_OP_GEMM:
    case PLAN_OP_GEMM_ADD:
      add_axis (self, d[PLAN_DIM_GEMM_m]);
      add_axis (self, d[PLAN_DIM_GEMM_n]);
      add_axis (self, d[PLAN_DIM_GEMM_k]);
      break;
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD: /* attention is proportional to the number of heads */
      self->units = (double)MAX (d[PLAN_DIM_ATTENTION_batch] * d[PLAN_DIM_ATTENTION_heads], 1);
      add_axis (self, d[PLAN_DIM_ATTENTION_seq] * d[PLAN_DIM_ATTENTION_keys]);
      add_axis (self, d[PLAN_DIM_ATTENTION_head_dim]);
      break;
    case PLAN_OP_LATENT_ATTENTION:
    case PLAN_OP_LATENT_ATTENTION_BWD:
      self->units = (double)MAX (
          d[PLAN_DIM_LATENT_ATTENTION_batch] * d[PLAN_DIM_LATENT_ATTENTION_heads], 1);
      add_axis (self, d[PLAN_DIM_LATENT_ATTENTION_seq] * d[PLAN_DIM_LATENT_ATTENTION_keys]);
      add_axis (self, d[PLAN_DIM_LATENT_ATTENTION_head_dim] + d[PLAN_DIM_LATENT_ATTENTION_v_dim]);
      break;
    case PLAN_OP_HEAD_NORM:
    case PLAN_OP_HEAD_NORM_BWD:
      add_axis (self, d[PLAN_DIM_HEAD_NORM_rows]);
      add_axis (self, d[PLAN_DIM_HEAD_NORM_heads] * d[PLAN_DIM_HEAD_NORM_q_dim]
                          + 2 * d[PLAN_DIM_HEAD_NORM_kv_heads] * d[PLAN_DIM_HEAD_NORM_k_dim]);
      break;
    case PLAN_OP_REPEAT_HEADS:
    case PLAN_OP_REPEAT_HEADS_BWD:
      add_axis (self, d[PLAN_DIM_REPEAT_HEADS_rows]);
      add_axis (self, (d[PLAN_DIM_REPEAT_HEADS_heads] + 2 * d[PLAN_DIM_REPEAT_HEADS_kv_heads])
                          * d[PLAN_DIM_REPEAT_HEADS_head_dim]);
      break;
    case PLAN_OP_ROPE:
      add_axis (self, d[PLAN_DIM_ROPE_rows]);
      add_axis (self, (d[PLAN_DIM_ROPE_heads] + 2 * d[PLAN_DIM_ROPE_kv_heads])
                          * d[PLAN_DIM_ROPE_head_dim]);
      break;
    case PLAN_OP_EMBED_BWD:
      add_axis (self, d[PLAN_DIM_EMBED_BWD_rows]);
      add_axis (self, d[PLAN_DIM_EMBED_BWD_cols]);
      add_axis (self, d[PLAN_DIM_EMBED_BWD_vocab]);
      break;
    default: /* any other op: by rows and columns, or by bytes */
      if (plan_op_n_dims (timing->kind) > 1
          && strcmp (plan_op_dim_name (timing->kind, 1), "cols") == 0)
        {
          add_axis (self, d[0]);
          add_axis (self, d[1]);
        }
      else
        add_axis (self, traffic (timing));
    }
}

/* Whether the format of an operand matters. Scratch follows from the other operands; a bias is too
 * small to matter, and so are the places of tokens beside the keys. */
static gboolean
matters (PlanOpKind kind, guint operand)
{
  return plan_op_ref_access (kind, operand) != 's'
         && strcmp (plan_op_ref_name (kind, operand), "places") != 0
         && !(kind == PLAN_OP_GEMM && operand == PLAN_REF_GEMM_bias);
}

/* Whether a dim is a size, and so not part of the key. The dims of ops on whole parameters grow
 * with their elements. */
static gboolean
is_size (PlanOpKind kind, guint dim)
{
  return plan_op_dim_is_size (kind, dim) || kind == PLAN_OP_PARAM_AMAX
         || kind == PLAN_OP_PARAM_QUANTIZE;
}

static Place
place_of (const SimTiming *timing)
{
  Place self;
  memset (&self, 0, sizeof self); /* keys are compared byte by byte */
  self.key.kind = timing->kind;
  self.key.nodes = MAX (timing->nodes, 1);
  for (guint i = 0; i < plan_op_n_refs (timing->kind); i++)
    self.key.dtype[i] = matters (timing->kind, i) ? timing->dtype[i] : -1;
  self.ranks = timing->ranks;
  self.units = 1;
  for (guint d = 0; d < plan_op_n_dims (timing->kind); d++)
    self.key.dims[d] = is_size (timing->kind, d) ? 0 : timing->dims[d];
  add_axes (&self, timing);
  return self;
}

/* Orders places by the grid that they are in. */
static int
compare_grids (const Place *a, const Place *b)
{
  const int by_key = memcmp (&a->key, &b->key, sizeof a->key);
  return by_key ? by_key : (a->ranks > b->ranks) - (a->ranks < b->ranks);
}

/* --- a grid ------------------------------------------------------------------------------- */

typedef struct
{
  Place place;
  double ns;
  guint position; /* index among the given rows */
} Row;

static int
compare_rows (const void *left, const void *right)
{
  const Row *a = left, *b = right;
  const int by_grid = compare_grids (&a->place, &b->place);
  return by_grid ? by_grid : (a->position > b->position) - (a->position < b->position);
}

static int
compare_sizes (const void *left, const void *right)
{
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double
size_at (const Grid *self, guint axis, guint i)
{
  return g_array_index (self->axis[axis], double, i);
}

/* The last point at or below `size`; 0 where all are above. */
static guint
point_below (const Grid *self, guint axis, double size)
{
  guint i = 0;
  while (i + 1 < self->axis[axis]->len && size_at (self, axis, i + 1) <= size)
    i++;
  return i;
}

static GArray *
collect_sizes (const Row *rows, guint n, guint axis)
{
  GArray *sizes = g_array_sized_new (FALSE, FALSE, sizeof (double), n);
  guint kept = 0;
  for (guint i = 0; i < n; i++)
    g_array_append_val (sizes, rows[i].place.at[axis]);
  qsort (sizes->data, n, sizeof (double), compare_sizes);
  for (guint i = 0; i < n; i++)
    if (i == 0
        || compare_sizes (&g_array_index (sizes, double, i), &g_array_index (sizes, double, i - 1)))
      g_array_index (sizes, double, kept++) = g_array_index (sizes, double, i);
  g_array_set_size (sizes, kept);
  return sizes;
}

static guint
stride_of (const Grid *self, guint axis)
{
  guint stride = 1;
  for (guint a = axis + 1; a < self->place.n_axes; a++)
    stride *= self->axis[a]->len;
  return stride;
}

static double
size_of_point (const Grid *self, guint point, guint axis)
{
  return size_at (self, axis, point / stride_of (self, axis) % self->axis[axis]->len);
}

/* The time at a point where nothing was timed: the least of all timed ones, each scaled up in
 * proportion to every size that is larger here. */
static double
fill (const Grid *self, guint point)
{
  double least = G_MAXDOUBLE;
  for (guint i = 0; i < self->n_points; i++)
    {
      double ns = self->ns[i];
      if (!self->is_timed[i])
        continue;
      for (guint a = 0; a < self->place.n_axes; a++)
        ns *= MAX (1, size_of_point (self, point, a) / size_of_point (self, i, a));
      least = MIN (least, ns);
    }
  return least;
}

/* Removes noise so that times rise with every size: each point becomes the mean of the longest time
 * at no larger sizes and the shortest at no smaller ones. */
static void
make_monotone (Grid *self)
{
  g_autofree double *most = g_memdup2 (self->ns, self->n_points * sizeof (double));
  g_autofree double *least = g_memdup2 (self->ns, self->n_points * sizeof (double));
  for (guint a = 0; a < self->place.n_axes; a++)
    {
      const guint stride = stride_of (self, a), length = self->axis[a]->len;
      for (guint i = 0; i < self->n_points; i++)
        if (i / stride % length > 0)
          most[i] = MAX (most[i], most[i - stride]);
      for (guint i = self->n_points; i-- > 0;)
        if (i / stride % length + 1 < length)
          least[i] = MIN (least[i], least[i + stride]);
    }
  for (guint i = 0; i < self->n_points; i++)
    self->ns[i] = (most[i] + least[i]) / 2;
}

static void
free_grid (gpointer data)
{
  Grid *self = data;
  for (guint a = 0; a < self->place.n_axes; a++)
    g_array_unref (self->axis[a]);
  g_free (self->ns);
  g_free (self->is_timed);
  g_free (self);
}

/* Makes the grid of like rows. NULL: it would be too large. */
static Grid *
grid_new (const Row *rows, guint n)
{
  Grid *self = g_new0 (Grid, 1);
  guint64 n_points = 1;
  self->place = rows->place;
  for (guint a = 0; a < self->place.n_axes; a++)
    {
      self->axis[a] = collect_sizes (rows, n, a);
      n_points = MIN (n_points * self->axis[a]->len, MAX_POINTS + 1);
    }
  if (n_points > MAX_POINTS)
    {
      free_grid (self);
      return NULL;
    }
  self->n_points = (guint)n_points;
  self->ns = g_new0 (double, n_points);
  self->is_timed = g_new0 (gboolean, n_points);
  for (guint i = 0; i < n; i++)
    {
      guint point = 0;
      for (guint a = 0; a < self->place.n_axes; a++)
        point += stride_of (self, a) * point_below (self, a, rows[i].place.at[a]);
      self->ns[point] = rows[i].ns;
      self->is_timed[point] = TRUE;
    }
  for (guint i = 0; i < self->n_points; i++)
    if (!self->is_timed[i])
      self->ns[i] = fill (self, i);
  make_monotone (self);
  return self;
}

SimTimings *
sim_timings_new (const SimTiming *rows, guint n)
{
  SimTimings *self = g_new0 (SimTimings, 1);
  g_autofree Row *sorted = g_new (Row, n + 1);
  self->grids = g_ptr_array_new_with_free_func (free_grid);
  for (guint i = 0; i < n; i++)
    {
      sorted[i] = (Row){ .place = place_of (&rows[i]), .position = i };
      sorted[i].ns = rows[i].ns / sorted[i].place.units;
    }
  if (n > 0)
    qsort (sorted, n, sizeof *sorted, compare_rows);
  for (guint begin = 0, end; begin < n; begin = end)
    {
      for (end = begin + 1;
           end < n && compare_grids (&sorted[begin].place, &sorted[end].place) == 0;)
        end++;
      Grid *grid = grid_new (sorted + begin, end - begin);
      if (grid)
        g_ptr_array_add (self->grids, grid);
    }
  return self;
}

void
sim_timings_free (SimTimings *self)
{
  if (!self)
    return;
  g_ptr_array_unref (self->grids);
  g_free (self);
}

/* --- looking up --------------------------------------------------------------------------- */

/* The time at a place. It is linear in each size between the points around it; below all points it
 * is that of the nearest point, and above all points in proportion to it. */
static double
read_grid (const Grid *self, const Place *place, SimTimed *out_how)
{
  const guint n_corners = 1u << self->place.n_axes;
  guint low[MAX_AXES] = { 0 };
  double share[MAX_AXES] = { 0 }, beyond = 1, ns = 0;
  *out_how = SIM_TIMED_AS_IS;
  for (guint a = 0; a < self->place.n_axes; a++)
    {
      const guint last = self->axis[a]->len - 1;
      const double size = place->at[a], first = size_at (self, a, 0);
      low[a] = point_below (self, a, size);
      const double from = size_at (self, a, low[a]);
      if (size < first || low[a] == last)
        beyond *= MAX (1, size / from);
      else
        share[a] = (size - from) / (size_at (self, a, low[a] + 1) - from);
      if (size < first || (low[a] == last && size > from))
        *out_how = SIM_TIMED_BEYOND;
      else if (share[a] > 0)
        *out_how = MAX (*out_how, SIM_TIMED_BETWEEN);
    }
  for (guint corner = 0; corner < n_corners; corner++)
    {
      guint point = 0;
      double weight = 1;
      for (guint a = 0; a < self->place.n_axes; a++)
        {
          const gboolean is_high = corner >> a & 1;
          weight *= is_high ? share[a] : 1 - share[a];
          point += stride_of (self, a) * (low[a] + (is_high && share[a] > 0 ? 1 : 0));
        }
      if (weight <= 0)
        continue;
      ns += weight * self->ns[point];
      if (!self->is_timed[point])
        *out_how = SIM_TIMED_BEYOND;
    }
  return ns * beyond;
}

static gboolean
is_collective (PlanOpKind kind)
{
  return plan_op_class (kind) == PLAN_CLASS_COLLECTIVE;
}

/* The best grid for a place. Grids of one key are sorted by rising ranks. */
static const Grid *
find_grid (const SimTimings *self, const Place *place)
{
  const Grid *best = NULL;
  for (guint i = 0; i < self->grids->len; i++)
    {
      const Grid *grid = self->grids->pdata[i];
      if (memcmp (&grid->place.key, &place->key, sizeof place->key) != 0)
        continue;
      if (is_collective ((PlanOpKind)place->key.kind) && grid->place.ranks != place->ranks)
        continue;
      if (!best || grid->place.ranks <= place->ranks)
        best = grid;
    }
  return best;
}

gboolean
sim_timings_find (const SimTimings *self, const SimTiming *op, gint64 cores, double *out_ns,
                  SimTimed *out_how)
{
  const Place place = place_of (op);
  const Grid *grid = find_grid (self, &place);
  if (!grid)
    return FALSE;
  *out_ns = read_grid (grid, &place, out_how) * place.units;
  if (grid->place.ranks == place.ranks)
    return TRUE;
  const double had = (double)MAX (grid->place.ranks, cores), has = (double)MAX (place.ranks, cores);
  *out_how = MAX (*out_how, SIM_TIMED_BETWEEN);
  if (cores > 0)
    *out_ns *= MAX (1, has / had);
  return TRUE;
}

/* --- as text ------------------------------------------------------------------------------ */

SimTiming
sim_timing_of (const PlanSchedule *schedule, const PlanOp *op)
{
  SimTiming self = { .kind = op->kind };
  memcpy (self.dims, op->dims, sizeof self.dims);
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    self.dtype[i] = i < plan_op_n_refs (op->kind) && op->refs[i].array >= 0
                        ? (gint8)plan_schedule_buffer (schedule, (guint)op->refs[i].array)->dtype
                        : -1;
  self.ranks = is_collective (op->kind) ? plan_schedule_group_size (schedule, op)
                                        : plan_schedule_ranks (schedule);
  return self;
}

char *
sim_timing_print_shape (const SimTiming *self)
{
  GString *text = g_string_new (NULL);
  for (guint d = 0; d < plan_op_n_dims (self->kind); d++)
    g_string_append_printf (text, "%s%s=%" G_GINT64_FORMAT, d ? " " : "",
                            plan_op_dim_name (self->kind, d), self->dims[d]);
  if (self->nodes > 1)
    g_string_append_printf (text, " nodes=%u", self->nodes);
  return g_string_free (text, FALSE);
}

char *
sim_timing_print_format (const SimTiming *self)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < plan_op_n_refs (self->kind); i++)
    if (self->dtype[i] >= 0)
      g_string_append_printf (text, "%s%s=%s", text->len ? " " : "",
                              plan_op_ref_name (self->kind, i),
                              plan_dtype_name ((PlanDtype)self->dtype[i]));
  return g_string_free (text, FALSE);
}

/* The value of "NAME=VALUE" among the words; NULL where there is none. */
static const char *
value_of (char *const *words, const char *name)
{
  const gsize length = strlen (name);
  for (; *words; words++)
    if (strncmp (*words, name, length) == 0 && (*words)[length] == '=')
      return *words + length + 1;
  return NULL;
}

static gboolean
parse_kind (const char *name, PlanOpKind *out, GError **error)
{
  const char *names[PLAN_N_OPS + 1] = { NULL };
  for (*out = 0; *out < PLAN_N_OPS; (*out)++)
    {
      names[*out] = plan_op_name (*out);
      if (strcmp (names[*out], name) == 0)
        return TRUE;
    }
  g_autofree char *hint = plan_text_suggest (name, names);
  g_autofree char *shown = plan_text_quote (name);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "no op is called %s; %s", shown, hint);
  return FALSE;
}

/* Reads "nodes"; without it there is one node. */
static gboolean
parse_nodes (char *const *sizes, SimTiming *self, GError **error)
{
  const char *value = value_of (sizes, "nodes");
  gint64 nodes = 1;
  if (value
      && !plan_units_parse_int (value, "nodes", 1, is_collective (self->kind) ? MAX_NODES : 1,
                                &nodes, error))
    return FALSE;
  self->nodes = (guint)nodes;
  return TRUE;
}

gboolean
sim_timing_parse (const char *op, const char *shape, const char *format, SimTiming *out,
                  GError **error)
{
  SimTiming self = *out;
  double whole = 1;
  g_auto (GStrv) sizes = g_strsplit (shape, " ", -1);
  g_auto (GStrv) formats = g_strsplit (format, " ", -1);
  if (!parse_kind (op, &self.kind, error))
    return FALSE;
  for (guint d = 0; d < PLAN_MAX_DIMS; d++)
    {
      const gboolean exists = d < plan_op_n_dims (self.kind);
      const char *name = exists ? plan_op_dim_name (self.kind, d) : "";
      const char *value = exists ? value_of (sizes, name) : "0";
      if (!plan_units_parse_int (value ? value : "", name, 0, MAX_SIZE, &self.dims[d], error))
        return FALSE;
      whole *= (double)MAX (self.dims[d], 1);
    }
  if (!parse_nodes (sizes, &self, error))
    return FALSE;
  if (whole > (double)MAX_SIZE)
    {
      g_autofree char *shown = plan_text_quote (shape);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is no size that anything has", shown);
      return FALSE;
    }
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    {
      const gboolean exists = i < plan_op_n_refs (self.kind);
      const char *name = exists ? plan_op_ref_name (self.kind, i) : "";
      const char *value = exists ? value_of (formats, name) : NULL;
      const gboolean may_lack = !exists || plan_op_ref_is_optional (self.kind, i)
                                || plan_op_ref_access (self.kind, i) == 's';
      PlanDtype dtype;
      self.dtype[i] = -1;
      if (!value && may_lack)
        continue;
      if (!plan_dtype_parse (value ? value : "", name, &dtype, error))
        return FALSE;
      self.dtype[i] = (gint8)dtype;
    }
  *out = self;
  return TRUE;
}
