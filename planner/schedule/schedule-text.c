/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a schedule, one thing per line; # starts a comment. Grammar:
 *
 *   schedule := "schedule 2 rank=" INT " ranks=" INT " graph"?  group*  buffer*  event*  section*
 *   group    := "group" NAME "size=" INT "stride=" INT ("registered=" INT)?       (bytes)
 *   buffer   := "buffer" NAME count? "elements=" INT "dtype=" DTYPE "category=" CATEGORY
 *               ("pieces=" INT)?            (equal ones, each used by itself)
 *   event    := "event" NAME count?
 *   count    := "[" INT "]"                 (one element where absent)
 *   section  := "section" ("setup" | "step" | "teardown")  item*
 *   item     := op | "repeat" VARIABLE "from=" INT "count=" INT "step=" INT ("along=" INT)?  item*
 *               "end"                       (along: elements per turn)
 *   op       := KIND STREAM ("group=" NAME)? (OPERAND "=" ref)* (DIM "=" INT)* (MANNER "=" REAL)*
 *               ("graph=" ("forward" | "backward" | "within"))?   (of a part of a layer)
 *               ("wait=" ref ("," ref)*)? ("record=" ref)?
 *   ref      := NAME ("[" index "]")? ("+" INT)? ("~" VARIABLE)?
 *               (+ INT: first element used; ~ VARIABLE: in its first turn, then further along)
 *   index    := (INT | VARIABLE | VARIABLE ("+" | "-") INT) ("%" INT)?
 *
 * Sections come in that order; a variable is visible inside its repeat. */
#include "config.h"

#include "planner/schedule/schedule-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

#define MAX_ARRAY (1 << 24) /* most elements of a buffer or event array */
#define MAX_PIECES 64       /* most pieces of a buffer */
#define MAX_MANNERS (1 << 12)
#define MAX_MANNER 1e15
#define MAX_ALONG (G_GINT64_CONSTANT (1) << 38)

static void
print_ref (const PlanSchedule *self, GString *out, const PlanRef *ref, gboolean is_event,
           const char *const *variables)
{
  const guint array = (guint)ref->array;
  const guint32 count = is_event ? plan_schedule_event (self, array)->count
                                 : plan_schedule_buffer (self, array)->count;
  g_string_append (out, is_event ? plan_schedule_event (self, array)->name
                                 : plan_schedule_buffer (self, array)->name);
  const gboolean varies = ref->loop >= 0 && !ref->moves;
  if (varies || count > 1 || ref->modulus > 0)
    {
      g_string_append_c (out, '[');
      if (varies)
        g_string_append (out, variables[ref->loop]);
      if (!varies || ref->offset != 0)
        g_string_append_printf (out, varies ? "%+d" : "%d", ref->offset);
      if (ref->modulus)
        g_string_append_printf (out, "%%%u", ref->modulus);
      g_string_append_c (out, ']');
    }
  if (ref->at > 0)
    g_string_append_printf (out, "+%" G_GUINT64_FORMAT, (guint64)ref->at);
  if (ref->moves)
    g_string_append_printf (out, "~%s", variables[ref->loop]);
}

static void
print_manner (GString *out, const PlanManner *manner)
{
  for (PlanMannerKey key = 0; key < PLAN_N_MANNERS; key++)
    if (manner->value[key] != 0)
      {
        g_autofree char *value = plan_units_format_real (manner->value[key]);
        g_string_append_printf (out, " %s=%s", plan_manner_name (key), value);
      }
}

static void
print_op (const PlanSchedule *self, GString *out, const PlanOp *op, const char *const *variables)
{
  g_string_append_printf (out, "%s %s", plan_op_name (op->kind), plan_stream_name (op->stream));
  if (op->group >= 0)
    g_string_append_printf (out, " group=%s", plan_schedule_group (self, (guint)op->group)->name);
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0)
      {
        g_string_append_printf (out, " %s=", plan_op_ref_name (op->kind, i));
        print_ref (self, out, &op->refs[i], FALSE, variables);
      }
  for (guint i = 0; i < plan_op_n_dims (op->kind); i++)
    g_string_append_printf (out, " %s=%" G_GINT64_FORMAT, plan_op_dim_name (op->kind, i),
                            op->dims[i]);
  print_manner (out, plan_schedule_manner (self, op));
  if (op->graph != PLAN_GRAPH_NONE)
    g_string_append_printf (out, " graph=%s", plan_graph_place_name (op->graph));
  for (guint i = 0; i < op->n_waits; i++)
    {
      g_string_append (out, i == 0 ? " wait=" : ",");
      print_ref (self, out, &op->waits[i], TRUE, variables);
    }
  if (op->record.array >= 0)
    {
      g_string_append (out, " record=");
      print_ref (self, out, &op->record, TRUE, variables);
    }
  g_string_append_c (out, '\n');
}

static void
print_declarations (const PlanSchedule *self, GString *out)
{
  for (guint i = 0; i < self->groups->len; i++)
    {
      const PlanGroup *g = plan_schedule_group (self, i);
      g_string_append_printf (out, "group %s size=%u stride=%u", g->name, g->size, g->stride);
      if (g->registered_bytes > 0)
        g_string_append_printf (out, " registered=%" G_GUINT64_FORMAT, g->registered_bytes);
      g_string_append_c (out, '\n');
    }
  for (guint i = 0; i < self->buffers->len; i++)
    {
      const PlanBuffer *b = plan_schedule_buffer (self, i);
      g_string_append_printf (out, "buffer %s", b->name);
      if (b->count > 1)
        g_string_append_printf (out, "[%u]", b->count);
      g_string_append_printf (out, " elements=%" G_GUINT64_FORMAT " dtype=%s category=%s",
                              b->elements, plan_dtype_name (b->dtype),
                              plan_category_name (b->category));
      if (b->pieces > 1)
        g_string_append_printf (out, " pieces=%u", b->pieces);
      g_string_append_c (out, '\n');
    }
  for (guint i = 0; i < self->events->len; i++)
    {
      const PlanEvent *e = plan_schedule_event (self, i);
      g_string_append_printf (out, "event %s", e->name);
      if (e->count > 1)
        g_string_append_printf (out, "[%u]", e->count);
      g_string_append_c (out, '\n');
    }
}

char *
plan_schedule_print (const PlanSchedule *self)
{
  GString *out = g_string_new (NULL);
  const char *variables[PLAN_MAX_DEPTH] = { NULL };
  guint depth = 0;

  g_string_append_printf (out, "schedule 2 rank=%u ranks=%u%s\n", self->rank, self->ranks,
                          self->is_graph ? " graph" : "");
  print_declarations (self, out);
  for (guint s = 0; s < self->n_sections_begun; s++)
    {
      g_string_append_printf (out, "section %s\n", plan_section_name (s));
      for (guint node = self->section_start[s]; node < self->section_start[s + 1]; node++)
        {
          const PlanOp *op = plan_schedule_node (self, node);
          if (op->kind == PLAN_OP_END)
            depth--;
          g_string_append_printf (out, "%*s", (int)(2 + 2 * depth), "");
          if (op->kind == PLAN_OP_REPEAT)
            {
              variables[depth++] = plan_schedule_variable (self, op);
              g_string_append_printf (out,
                                      "repeat %s from=%" G_GINT64_FORMAT " count=%" G_GINT64_FORMAT
                                      " step=%" G_GINT64_FORMAT,
                                      variables[depth - 1], op->dims[PLAN_REPEAT_FROM],
                                      op->dims[PLAN_REPEAT_COUNT], op->dims[PLAN_REPEAT_STEP]);
              if (op->dims[PLAN_REPEAT_ALONG] != 0)
                g_string_append_printf (out, " along=%" G_GINT64_FORMAT,
                                        op->dims[PLAN_REPEAT_ALONG]);
              g_string_append_c (out, '\n');
            }
          else if (op->kind == PLAN_OP_END)
            g_string_append (out, "end\n");
          else
            print_op (self, out, op, variables);
        }
    }
  return g_string_free (out, FALSE);
}

char *
plan_schedule_hash (const PlanSchedule *self)
{
  g_autofree char *text = plan_schedule_print (self);
  g_autofree char *digits = g_compute_checksum_for_string (G_CHECKSUM_SHA256, text, -1);
  return g_strndup (digits, 16);
}

/* The state of the parser. */
typedef struct
{
  const char *origin;
  guint line;
  PlanSchedule *schedule;
  GHashTable *buffers, *events; /* name -> index + 1 */
  const char *variables[PLAN_MAX_DEPTH];
} Reader;

G_GNUC_PRINTF (3, 4)
static gboolean
fail (const Reader *reader, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_autofree char *line = plan_text_line (message);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s", reader->origin, reader->line,
               line);
  return FALSE;
}

static gboolean
read_int (const Reader *reader, const char *text, gint64 min, gint64 max, gint64 *out,
          GError **error)
{
  char *end = NULL;
  if (!(g_ascii_isdigit (*text) || (*text == '-' && g_ascii_isdigit (text[1]))))
    return fail (reader, error, "'%s' is not an integer", text);
  errno = 0;
  const gint64 value = g_ascii_strtoll (text, &end, 10);
  if (*end || errno || value < min || value > max)
    return fail (reader, error,
                 "'%s' is not an integer from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, text, min,
                 max);
  *out = value;
  return TRUE;
}

/* The value of "key=value"; NULL where the word has another key. */
static const char *
value_of (const char *word, const char *key)
{
  const gsize n = strlen (key);
  return strncmp (word, key, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static gboolean
is_name (const char *text)
{
  if (!g_ascii_isalpha (*text))
    return FALSE;
  for (; *text; text++)
    if (!g_ascii_isalnum (*text) && !strchr ("._", *text))
      return FALSE;
  return TRUE;
}

/* Cuts "name[text]" in place; *out_inside is NULL where there are no brackets. */
static gboolean
cut_brackets (const Reader *reader, char *text, char **out_inside, GError **error)
{
  char *open = strchr (text, '[');
  *out_inside = NULL;
  if (open)
    {
      char *close = strchr (open, ']');
      if (!close || close[1])
        return fail (reader, error, "'%s' has a '[' without its ']' at the end", text);
      *open = *close = '\0';
      *out_inside = open + 1;
    }
  if (!is_name (text))
    return fail (reader, error, "'%s' is not a name", text);
  return TRUE;
}

/* Finds the innermost enclosing repeat with the variable that `text` begins with. */
static gboolean
find_variable (const Reader *reader, const char *text, gsize n, PlanRef *ref, GError **error)
{
  for (int d = (int)reader->schedule->depth - 1; d >= 0 && ref->loop < 0; d--)
    if (strlen (reader->variables[d]) == n && strncmp (reader->variables[d], text, n) == 0)
      ref->loop = (gint8)d;
  return ref->loop >= 0
         || fail (reader, error, "no repeat around here has the variable '%.*s'", (int)n, text);
}

static gboolean
read_index (const Reader *reader, char *text, PlanRef *ref, GError **error)
{
  gint64 offset = 0, modulus = 0;
  char *const percent = strchr (text, '%');
  if (percent)
    {
      if (!read_int (reader, percent + 1, 1, G_MAXUINT8, &modulus, error))
        return FALSE;
      ref->modulus = (guint8)modulus;
      *percent = '\0';
    }
  if (g_ascii_isalpha (*text))
    {
      const gsize n = strcspn (text, "+-");
      if (!find_variable (reader, text, n, ref, error))
        return FALSE;
      text += n;
      if (*text == '+')
        text++;
      else if (!*text)
        return TRUE;
    }
  if (!read_int (reader, text, -MAX_ARRAY, MAX_ARRAY, &offset, error))
    return FALSE;
  ref->offset = (gint32)offset;
  return TRUE;
}

static gboolean
read_ref (const Reader *reader, const char *text, gboolean is_event, PlanRef *out, GError **error)
{
  g_autofree char *copy = g_strdup (text);
  PlanRef ref = PLAN_REF_NONE;
  char *inside = NULL;
  char *along = is_event ? NULL : strchr (copy, '~');
  if (along)
    *along = '\0';
  char *after = strchr (copy, ']');
  char *plus = strchr (after ? after : copy, '+');

  if (plus && !is_event)
    {
      gint64 at = 0;
      if (!read_int (reader, plus + 1, 1, PLAN_MAX_AT, &at, error))
        return FALSE;
      ref.at = (guint64)at;
      *plus = '\0';
    }
  if (!cut_brackets (reader, copy, &inside, error))
    return FALSE;
  ref.array
      = GPOINTER_TO_INT (g_hash_table_lookup (is_event ? reader->events : reader->buffers, copy))
        - 1;
  if (ref.array < 0)
    return fail (reader, error, "there is no %s '%s'", is_event ? "event" : "buffer", copy);
  if (inside && !read_index (reader, inside, &ref, error))
    return FALSE;
  if (along && ref.loop >= 0)
    return fail (reader, error, "'%s' goes from buffer to buffer, and not along one", text);
  if (along && !find_variable (reader, along + 1, strlen (along + 1), &ref, error))
    return FALSE;
  ref.moves = along != NULL;
  *out = ref;
  return TRUE;
}

static gboolean
read_waits (const Reader *reader, const char *text, PlanOp *op, GError **error)
{
  g_auto (GStrv) names = g_strsplit (text, ",", -1);
  for (char **n = names; *n; n++)
    {
      if (op->n_waits == PLAN_MAX_WAITS)
        return fail (reader, error, "an op waits for at most %d events", PLAN_MAX_WAITS);
      if (!read_ref (reader, *n, TRUE, &op->waits[op->n_waits], error))
        return FALSE;
      op->n_waits++;
    }
  return TRUE;
}

static gboolean
read_group_name (const Reader *reader, const char *name, PlanOp *op, GError **error)
{
  for (guint g = 0; g < plan_schedule_n_groups (reader->schedule); g++)
    if (strcmp (plan_schedule_group (reader->schedule, g)->name, name) == 0)
      {
        op->group = (gint8)g;
        return TRUE;
      }
  return fail (reader, error, "there is no group '%s'", name);
}

static gboolean
read_manner (const Reader *reader, PlanMannerKey key, const char *text, PlanOp *op, GError **error)
{
  PlanManner manner = *plan_schedule_manner (reader->schedule, op);
  g_autoptr (GError) why = NULL;
  if (!plan_units_parse_real (text, plan_manner_name (key), 0, MAX_MANNER, &manner.value[key],
                              &why))
    return fail (reader, error, "%s", why->message);
  op->manner = plan_schedule_add_manner (reader->schedule, &manner);
  return op->manner < MAX_MANNERS
         || fail (reader, error, "there are more than %d manners of ops", MAX_MANNERS);
}

static gboolean
read_graph_place (const Reader *reader, const char *name, PlanOp *op, GError **error)
{
  const gboolean is_memory = op->kind == PLAN_OP_ALLOC;
  for (PlanGraphPlace place = PLAN_GRAPH_FORWARD; place < PLAN_N_GRAPH_PLACES; place++)
    if (strcmp (name, plan_graph_place_name (place)) == 0
        && (!is_memory || place == PLAN_GRAPH_WITHIN))
      {
        op->graph = (guint8)place;
        return TRUE;
      }
  return fail (reader, error, "graph= is %s, not '%s'",
               is_memory ? "within" : "forward, backward or within", name);
}

/* Reads one "key=value" of an op; `seen` has a bit per operand, then per dim. */
static gboolean
read_op_word (const Reader *reader, const char *word, PlanOp *op, guint *seen, GError **error)
{
  const char *value = NULL;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if ((value = value_of (word, plan_op_ref_name (op->kind, i))))
      {
        *seen |= 1u << i;
        return read_ref (reader, value, FALSE, &op->refs[i], error);
      }
  for (guint i = 0; i < plan_op_n_dims (op->kind); i++)
    if ((value = value_of (word, plan_op_dim_name (op->kind, i))))
      {
        *seen |= 1u << (PLAN_MAX_REFS + i);
        return read_int (reader, value, 0, G_MAXINT64, &op->dims[i], error);
      }
  for (PlanMannerKey key = 0; key < PLAN_N_MANNERS; key++)
    if (plan_manner_is_of (key, op->kind) && (value = value_of (word, plan_manner_name (key))))
      return read_manner (reader, key, value, op, error);
  if ((value = value_of (word, "group")))
    return read_group_name (reader, value, op, error);
  if (plan_op_goes_into_graphs (op->kind) && (value = value_of (word, "graph")))
    return read_graph_place (reader, value, op, error);
  if ((value = value_of (word, "wait")))
    return read_waits (reader, value, op, error);
  if ((value = value_of (word, "record")))
    return read_ref (reader, value, TRUE, &op->record, error);
  return fail (reader, error, "%s does not take '%s'", plan_op_name (op->kind), word);
}

static gboolean
read_op (const Reader *reader, char **words, GError **error)
{
  PlanOp op;
  guint kind, stream, seen = 0;

  for (kind = 0; kind < PLAN_N_OPS && strcmp (words[0], plan_op_name (kind)) != 0;)
    kind++;
  if (kind == PLAN_N_OPS)
    return fail (reader, error, "there is no op '%s'", words[0]);
  for (stream = 0;
       words[1] && stream < PLAN_N_STREAMS && strcmp (words[1], plan_stream_name (stream)) != 0;)
    stream++;
  if (!words[1] || stream == PLAN_N_STREAMS)
    return fail (reader, error, "%s needs a stream, not '%s'", words[0], words[1] ? words[1] : "");
  plan_op_init (&op, kind, stream);
  for (char **w = words + 2; *w; w++)
    if (!read_op_word (reader, *w, &op, &seen, error))
      return FALSE;
  if ((op.group >= 0) != (plan_op_class (kind) == PLAN_CLASS_COLLECTIVE))
    return fail (reader, error, "%s %s", words[0],
                 op.group >= 0 ? "is no collective and takes no group=" : "needs group=");
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    if (!(seen & 1u << i) && !plan_op_ref_is_optional (kind, i))
      return fail (reader, error, "%s needs %s=", words[0], plan_op_ref_name (kind, i));
    else if (op.refs[i].moves && plan_op_class (kind) == PLAN_CLASS_MEMORY)
      return fail (reader, error, "%s is about a whole buffer: '~' has no place there", words[0]);
  for (guint i = 0; i < plan_op_n_dims (kind); i++)
    if (!(seen & 1u << (PLAN_MAX_REFS + i)))
      return fail (reader, error, "%s needs %s=", words[0], plan_op_dim_name (kind, i));
  plan_schedule_add (reader->schedule, &op);
  return TRUE;
}

static gboolean
read_repeat (Reader *reader, char **words, GError **error)
{
  gint64 from = 0, count = 0, step = 0, along = 0;
  const guint n = g_strv_length (words);
  const char *elements = n == 6 ? value_of (words[5], "along") : NULL;
  if (n != (elements ? 6 : 5) || !is_name (words[1]) || !value_of (words[2], "from")
      || !value_of (words[3], "count") || !value_of (words[4], "step"))
    return fail (reader, error,
                 "a repeat reads 'repeat NAME from=INT count=INT step=INT along=INT'");
  if (!read_int (reader, value_of (words[2], "from"), 0, MAX_ARRAY, &from, error)
      || !read_int (reader, value_of (words[3], "count"), 1, MAX_ARRAY, &count, error)
      || !read_int (reader, value_of (words[4], "step"), -MAX_ARRAY, MAX_ARRAY, &step, error)
      || (elements && !read_int (reader, elements, -MAX_ALONG, MAX_ALONG, &along, error)))
    return FALSE;
  if (reader->schedule->depth == PLAN_MAX_DEPTH)
    return fail (reader, error, "repeats nest at most %d deep", PLAN_MAX_DEPTH);
  plan_schedule_begin_repeat (reader->schedule, words[1], from, count, step);
  plan_schedule_move_along (reader->schedule, along);
  reader->variables[reader->schedule->depth - 1]
      = g_array_index (reader->schedule->variables, char *, reader->schedule->variables->len - 1);
  return TRUE;
}

static gboolean
read_group (const Reader *reader, char **words, GError **error)
{
  gint64 size, stride, registered = 0;
  const guint ranks = plan_schedule_ranks (reader->schedule), n = g_strv_length (words);
  const char *bytes = n == 5 ? value_of (words[4], "registered") : NULL;
  if (n != (bytes ? 5 : 4) || !is_name (words[1]) || !value_of (words[2], "size")
      || !value_of (words[3], "stride"))
    return fail (reader, error, "a group reads 'group NAME size=INT stride=INT registered=BYTES'");
  if (!read_int (reader, value_of (words[2], "size"), 1, ranks, &size, error)
      || !read_int (reader, value_of (words[3], "stride"), 1, ranks, &stride, error)
      || (bytes && !read_int (reader, bytes, 1, G_MAXINT64 / 16, &registered, error)))
    return FALSE;
  if (ranks % (size * stride) != 0)
    return fail (reader, error, "group '%s': size x stride must divide the %u ranks", words[1],
                 ranks);
  for (guint g = 0; g < plan_schedule_n_groups (reader->schedule); g++)
    if (strcmp (plan_schedule_group (reader->schedule, g)->name, words[1]) == 0)
      return fail (reader, error, "there are two groups '%s'", words[1]);
  if (plan_schedule_n_groups (reader->schedule) == PLAN_MAX_GROUPS)
    return fail (reader, error, "there are more than %d groups", PLAN_MAX_GROUPS);
  const gint8 group
      = plan_schedule_add_group (reader->schedule, words[1], (guint)size, (guint)stride);
  plan_schedule_register (reader->schedule, (guint)group, (guint64)registered);
  return TRUE;
}

static gboolean
read_buffer (const Reader *reader, char **words, GError **error)
{
  char *inside = NULL;
  gint64 count = 1, elements = 0, pieces = 1;
  PlanDtype dtype = 0;
  guint category = 0;
  const guint n = g_strv_length (words);
  const char *cut = n == 6 ? value_of (words[5], "pieces") : NULL;

  if (n != (cut ? 6 : 5) || !value_of (words[2], "elements") || !value_of (words[3], "dtype")
      || !value_of (words[4], "category"))
    return fail (reader, error,
                 "a buffer reads 'buffer NAME[COUNT] elements=INT dtype=FORMAT category=NAME "
                 "pieces=INT'");
  if (!cut_brackets (reader, words[1], &inside, error)
      || (inside && !read_int (reader, inside, 1, MAX_ARRAY, &count, error))
      || !read_int (reader, value_of (words[2], "elements"), 0, G_MAXINT64 / 16, &elements, error)
      || (cut && !read_int (reader, cut, 1, MAX_PIECES, &pieces, error))
      || !plan_dtype_parse (value_of (words[3], "dtype"), words[1], &dtype, error))
    return FALSE;
  if (elements % pieces != 0)
    return fail (reader, error, "buffer '%s': pieces must divide the elements", words[1]);
  const char *name = value_of (words[4], "category");
  while (category <= PLAN_CATEGORY_HOST && strcmp (name, plan_category_name (category)) != 0)
    category++;
  if (category > PLAN_CATEGORY_HOST)
    return fail (reader, error, "there is no category '%s'", name);
  if (g_hash_table_contains (reader->buffers, words[1]))
    return fail (reader, error, "there are two buffers '%s'", words[1]);
  if (plan_schedule_n_buffer_ids (reader->schedule) + count > MAX_ARRAY)
    return fail (reader, error, "there are more than %d buffers", MAX_ARRAY);
  const gint32 index = plan_schedule_add_buffer (reader->schedule, words[1], (guint32)count,
                                                 (guint64)elements, dtype, category);
  plan_schedule_cut_buffer (reader->schedule, (guint)index, (guint32)pieces);
  g_hash_table_insert (reader->buffers, g_strdup (words[1]), GINT_TO_POINTER (index + 1));
  return TRUE;
}

static gboolean
read_event (const Reader *reader, char **words, GError **error)
{
  char *inside = NULL;
  gint64 count = 1;
  if (g_strv_length (words) != 2)
    return fail (reader, error, "an event reads 'event NAME[COUNT]'");
  if (!cut_brackets (reader, words[1], &inside, error)
      || (inside && !read_int (reader, inside, 1, MAX_ARRAY, &count, error)))
    return FALSE;
  if (g_hash_table_contains (reader->events, words[1]))
    return fail (reader, error, "there are two events '%s'", words[1]);
  if (plan_schedule_n_event_ids (reader->schedule) + count > MAX_ARRAY)
    return fail (reader, error, "there are more than %d events", MAX_ARRAY);
  const gint32 index = plan_schedule_add_event (reader->schedule, words[1], (guint32)count);
  g_hash_table_insert (reader->events, g_strdup (words[1]), GINT_TO_POINTER (index + 1));
  return TRUE;
}

static gboolean
read_section (const Reader *reader, char **words, GError **error)
{
  const guint section = reader->schedule->n_sections_begun;
  if (section == PLAN_N_SECTIONS || g_strv_length (words) != 2
      || strcmp (words[1], plan_section_name (section)) != 0)
    return fail (reader, error, "expected 'section %s'",
                 section < PLAN_N_SECTIONS ? plan_section_name (section) : "(none)");
  if (reader->schedule->depth > 0)
    return fail (reader, error, "a repeat is not ended before the section");
  plan_schedule_begin_section (reader->schedule, section);
  return TRUE;
}

static gboolean
read_header (Reader *reader, char **words, GError **error)
{
  gint64 rank = 0, ranks = 0;
  const guint n = g_strv_length (words);
  const gboolean is_graph = n == 5 && strcmp (words[4], "graph") == 0;
  if (n != (is_graph ? 5u : 4u) || strcmp (words[0], "schedule") != 0 || strcmp (words[1], "2") != 0
      || !value_of (words[2], "rank") || !value_of (words[3], "ranks"))
    return fail (
        reader, error,
        "a schedule begins with 'schedule 2 rank=INT ranks=INT', and 'graph' where it is one");
  if (!read_int (reader, value_of (words[3], "ranks"), 1, G_MAXINT32, &ranks, error)
      || !read_int (reader, value_of (words[2], "rank"), 0, ranks - 1, &rank, error))
    return FALSE;
  reader->schedule = plan_schedule_new ((guint)rank, (guint)ranks);
  reader->schedule->is_graph = is_graph;
  return TRUE;
}

static gboolean
read_line (Reader *reader, char **words, GError **error)
{
  if (!reader->schedule)
    return read_header (reader, words, error);
  const gboolean declares = reader->schedule->n_sections_begun == 0;
  if (strcmp (words[0], "section") == 0)
    return read_section (reader, words, error);
  if (strcmp (words[0], "group") == 0 && declares)
    return read_group (reader, words, error);
  if (strcmp (words[0], "buffer") == 0 && declares)
    return read_buffer (reader, words, error);
  if (strcmp (words[0], "event") == 0 && declares)
    return read_event (reader, words, error);
  if (declares)
    return fail (reader, error, "'%s' stands before the first section", words[0]);
  if (strcmp (words[0], "repeat") == 0)
    return read_repeat (reader, words, error);
  if (strcmp (words[0], "end") != 0)
    return read_op (reader, words, error);
  if (reader->schedule->depth == 0 || words[1])
    return fail (reader, error, "this 'end' ends no repeat");
  plan_schedule_end_repeat (reader->schedule);
  return TRUE;
}

/* Splits a line into words in place; the array is NULL-terminated and freed by the caller. */
static char **
split_words (char *line)
{
  GPtrArray *words = g_ptr_array_new ();
  char *comment = strchr (line, '#');
  if (comment)
    *comment = '\0';
  for (char *save = NULL, *w = strtok_r (line, " \t\r", &save); w;
       w = strtok_r (NULL, " \t\r", &save))
    g_ptr_array_add (words, w);
  g_ptr_array_add (words, NULL);
  return (char **)g_ptr_array_free (words, FALSE);
}

static gboolean
read_lines (Reader *reader, const char *text, GError **error)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (char **l = lines; *l; l++)
    {
      g_autofree char **words = split_words (*l);
      reader->line++;
      if (words[0] && !read_line (reader, words, error))
        return FALSE;
    }
  if (!reader->schedule)
    return fail (reader, error, "there is no schedule in it");
  if (reader->schedule->n_sections_begun < PLAN_N_SECTIONS || reader->schedule->depth > 0)
    return fail (reader, error, "the schedule ends before its last section does");
  return TRUE;
}

PlanSchedule *
plan_schedule_parse (const char *text, const char *origin, GError **error)
{
  g_autoptr (GHashTable) buffers = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GHashTable) events = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  Reader reader = { .origin = origin, .buffers = buffers, .events = events };
  const gboolean ok = read_lines (&reader, text, error);
  g_autoptr (PlanSchedule) schedule = reader.schedule;
  return ok ? g_steal_pointer (&schedule) : NULL;
}
