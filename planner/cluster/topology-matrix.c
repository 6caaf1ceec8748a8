/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what `nvidia-smi topo -m` prints: a line of names, then a line per device with its path to
 * all of them, then legends. Cells are separated by tabs, or by blanks where the text was copied
 * from a terminal. It names neither the GPUs nor the rates of ports. */
#include "config.h"

#include "planner/base/lines.h"
#include "planner/base/text.h"
#include "planner/cluster/topology-private.h"

#include <string.h>

typedef struct
{
  PlanTopology *topology;
  GPtrArray *names; /* char *: names of all columns */
  GArray *lines;    /* guint: line number of each row */
  gint *ways; /* [names][names]: PlanPath, or minus the number of NVLinks; G_MAXINT for a device and
                 itself */
} Reader;

static GPtrArray *
words_of (const char *line)
{
  GPtrArray *words = g_ptr_array_new_with_free_func (g_free);
  while (*(line += strspn (line, " \t\r")))
    {
      const gsize length = strcspn (line, " \t\r");
      g_ptr_array_add (words, g_strndup (line, length));
      line += length;
    }
  return words;
}

/* Whether a word is "GPU" and a number. */
static gboolean
is_gpu (const char *word)
{
  return g_str_has_prefix (word, "GPU") && g_ascii_isdigit (word[3])
         && word[3 + strspn (word + 3, "0123456789")] == '\0';
}

/* Reads the header. Columns behind those of devices are titles: "CPU Affinity", "NUMA Affinity",
 * "GPU NUMA ID". */
static gboolean
read_header (Reader *self, GPtrArray *words, guint line, GError **error)
{
  for (guint i = 0; i < words->len; i++)
    {
      const char *word = words->pdata[i];
      if (g_str_equal (word, "CPU") || g_str_equal (word, "NUMA")
          || (g_str_equal (word, "GPU") && i + 1 < words->len))
        break;
      if (is_gpu (word) && self->names->len > self->topology->gpus->len)
        return plan_topology_refuse (error, line, "%s stands behind a column that is no GPU", word);
      if (g_ptr_array_find_with_equal_func (self->names, word, g_str_equal, NULL))
        return plan_topology_refuse (error, line, "column %s is there twice", word);
      if (self->names->len == 2 * PLAN_TOPOLOGY_MAX
          || self->topology->gpus->len == PLAN_TOPOLOGY_MAX)
        return plan_topology_refuse (error, line, "there are too many columns");
      g_ptr_array_add (self->names, g_strdup (word));
      const PlanTopologyGpu gpu = { 0 };
      const PlanTopologyPort port = { .name = is_gpu (word) ? NULL : g_strdup (word) };
      if (is_gpu (word))
        g_array_append_val (self->topology->gpus, gpu);
      else
        g_array_append_val (self->topology->ports, port);
    }
  if (self->topology->gpus->len == 0)
    return plan_topology_refuse (error, line, "no columns of GPUs: expected GPU0, GPU1, ...");
  self->ways = g_new0 (gint, (gsize)self->names->len * self->names->len);
  return TRUE;
}

/* Parses "NV18", "PIX" and the like; FALSE for anything else. */
static gboolean
parse_way (const char *word, gint *out)
{
  static const char *const ways[] = { [PLAN_PATH_PIX] = "PIX",
                                      [PLAN_PATH_PXB] = "PXB",
                                      [PLAN_PATH_PHB] = "PHB",
                                      [PLAN_PATH_NODE] = "NODE",
                                      [PLAN_PATH_SYS] = "SYS" };
  guint64 links;
  for (gint i = 0; i < PLAN_N_PATHS; i++)
    if (g_str_equal (word, ways[i]))
      {
        *out = i;
        return TRUE;
      }
  if (g_str_equal (word, "X"))
    *out = G_MAXINT;
  else if (g_str_has_prefix (word, "NV")
           && g_ascii_string_to_unsigned (word + 2, 10, 1, 64, &links, NULL))
    *out = -(gint)links;
  else
    return FALSE;
  return TRUE;
}

/* The NUMA node in a GPU's row, behind its processors; 0 where it is unknown. */
static guint
numa_of (const GPtrArray *words, guint n)
{
  guint64 numa = 0;
  if (words->len > n + 2)
    g_ascii_string_to_unsigned (words->pdata[n + 2], 10, 0, 1023, &numa, NULL);
  return (guint)numa;
}

static gboolean
read_row (Reader *self, const GPtrArray *words, guint line, GError **error)
{
  const guint row = self->lines->len, n = self->names->len;
  const char *name = self->names->pdata[row];
  if (!g_str_equal (words->pdata[0], name))
    {
      g_autofree char *shown = plan_text_quote (words->pdata[0]);
      return plan_topology_refuse (error, line, "%s: expected the row of %s", shown, name);
    }
  if (words->len < n + 1)
    return plan_topology_refuse (error, line, "%s has %u cells for %u columns", name,
                                 words->len - 1, n);
  for (guint c = 0; c < n; c++)
    {
      const char *word = words->pdata[c + 1], *other = self->names->pdata[c];
      gint *way = &self->ways[row * n + c];
      g_autofree char *shown = plan_text_quote (word);
      if (!parse_way (word, way))
        return plan_topology_refuse (
            error, line, "%s to %s: %s is none of X, NV and a number, PIX, PXB, PHB, NODE, SYS",
            name, other, shown);
      if ((*way == G_MAXINT) != (c == row))
        return plan_topology_refuse (error, line, "%s to %s: %s, and X is for a device and itself",
                                     name, other, shown);
      if (*way < 0 && (row >= self->topology->gpus->len || c >= self->topology->gpus->len))
        return plan_topology_refuse (error, line, "%s to %s: %s, and NVLink joins GPUs", name,
                                     other, shown);
      if (c < row && self->ways[c * n + row] != *way)
        return plan_topology_refuse (error, line, "%s to %s: %s, and line %u says otherwise", name,
                                     other, shown, g_array_index (self->lines, guint, c));
    }
  if (row < self->topology->gpus->len)
    g_array_index (self->topology->gpus, PlanTopologyGpu, row).numa = numa_of (words, n);
  g_array_append_val (self->lines, line);
  return TRUE;
}

/* Reads "  NIC0: mlx5_0" below the table. */
static void
read_legend (Reader *self, const GPtrArray *words)
{
  char *colon = words->len == 2 ? strchr (words->pdata[0], ':') : NULL;
  if (!colon || colon[1] != '\0')
    return;
  *colon = '\0';
  for (guint p = 0; p < self->topology->ports->len; p++)
    {
      PlanTopologyPort *port = &g_array_index (self->topology->ports, PlanTopologyPort, p);
      if (g_str_equal (words->pdata[0], self->names->pdata[self->topology->gpus->len + p]))
        {
          g_free (port->name);
          port->name = g_strdup (words->pdata[1]);
        }
    }
}

static gboolean
read_lines (Reader *self, char **lines, GError **error)
{
  for (guint i = 0; lines[i]; i++)
    {
      plan_lines_strip_colours (lines[i]); /* names are underlined */
      g_autoptr (GPtrArray) words = words_of (lines[i]);
      if (words->len == 0)
        continue;
      if (!self->ways)
        {
          if (!read_header (self, words, i + 1, error))
            return FALSE;
        }
      else if (self->lines->len < self->names->len)
        {
          if (!read_row (self, words, i + 1, error))
            return FALSE;
        }
      else
        read_legend (self, words);
    }
  if (self->lines->len == self->names->len && self->names->len > 0)
    return TRUE;
  return plan_topology_refuse (error, g_strv_length (lines), "the table has %u rows for %u columns",
                               self->lines->len, self->names->len);
}

/* Counts the NVLinks of each GPU. Links through switches are listed with every other GPU: then all
 * pairs have the same number, and their sum is more than any GPU has. */
static void
count_links (Reader *self)
{
  PlanTopology *topology = self->topology;
  const guint n = self->names->len;
  for (guint g = 0; g < topology->gpus->len; g++)
    {
      PlanTopologyGpu *gpu = &g_array_index (topology->gpus, PlanTopologyGpu, g);
      gint64 sum = 0, most = 0;
      gpu->island = g;
      for (guint other = 0; other < topology->gpus->len; other++)
        {
          const gint way = self->ways[g * n + other];
          sum += way < 0 ? -way : 0;
          most = MAX (most, -way);
          if (way < 0 && other < g)
            gpu->island
                = MIN (gpu->island, g_array_index (topology->gpus, PlanTopologyGpu, other).island);
        }
      gpu->has_switch = sum > 18; /* up to NVLink 5.0 no GPU has more links than that */
      gpu->links = gpu->has_switch ? most : sum;
    }
}

/* Joins islands that a later row connects. */
static void
join_islands (Reader *self)
{
  const guint n = self->names->len;
  GArray *gpus = self->topology->gpus;
  gboolean changed = TRUE;
  while (changed)
    {
      changed = FALSE;
      for (guint a = 0; a < gpus->len; a++)
        for (guint b = 0; b < gpus->len; b++)
          {
            PlanTopologyGpu *one = &g_array_index (gpus, PlanTopologyGpu, a);
            const PlanTopologyGpu *other = &g_array_index (gpus, PlanTopologyGpu, b);
            if (self->ways[a * n + b] < 0 && other->island < one->island)
              {
                one->island = other->island;
                changed = TRUE;
              }
          }
    }
}

static void
finish (Reader *self)
{
  PlanTopology *topology = self->topology;
  const guint n = self->names->len, gpus = topology->gpus->len;
  guint numas = 1;
  count_links (self);
  join_islands (self);
  for (guint g = 0; g < gpus; g++)
    {
      numas = MAX (numas, g_array_index (topology->gpus, PlanTopologyGpu, g).numa + 1);
      for (guint p = 0; p < topology->ports->len; p++)
        {
          const guint8 path = (guint8)self->ways[g * n + gpus + p];
          g_byte_array_append (topology->paths, &path, 1);
        }
    }
  topology->hosts = 1;
  topology->numa_nodes = numas;
}

gboolean
plan_topology_read_matrix (PlanTopology *self, const char *text, GError **error)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  Reader reader = { .topology = self,
                    .names = g_ptr_array_new_with_free_func (g_free),
                    .lines = g_array_new (FALSE, FALSE, sizeof (guint)) };
  const gboolean ok = read_lines (&reader, lines, error);
  if (ok)
    finish (&reader);
  g_ptr_array_unref (reader.names);
  g_array_unref (reader.lines);
  g_free (reader.ways);
  return ok;
}
