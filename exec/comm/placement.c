/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/comm/placement.h"

#include "exec/probe/cores.h"
#include "planner/base/error.h"

#include <string.h>

#define NAME_BYTES 64
#define DIGEST_BYTES 32
#define SHOWN_HOSTS 8
#define TEXT_BYTES 8192 /* of a text, compared line by line where its digest differs */

/* What each rank tells the others about itself. */
typedef struct
{
  char host[NAME_BYTES];
  char version[NAME_BYTES];
  guint8 program[DIGEST_BYTES];
  ExecCores cores;
} Card;

static ExecPlacement *
placement_new (guint ranks)
{
  ExecPlacement *self = g_new0 (ExecPlacement, 1);
  self->ranks = ranks;
  self->host_names = g_new0 (char *, ranks + 1);
  self->host_of = g_new0 (guint, ranks);
  return self;
}

void
exec_placement_free (ExecPlacement *self)
{
  if (!self)
    return;
  g_strfreev (self->host_names);
  g_free (self->host_of);
  g_free (self);
}

/* The name of this host. Slurm's name of the node comes first, because one machine may play several
 * nodes. */
static const char *
own_host (void)
{
  const char *node = g_getenv ("SLURMD_NODENAME");
  return node && *node ? node : g_get_host_name ();
}

ExecPlacement *
exec_placement_new_local (guint ranks)
{
  ExecPlacement *self = placement_new (ranks);
  ExecCores cores;
  exec_cores_read (&cores);
  self->host_names[self->hosts++] = g_strdup (own_host ());
  self->threads = MAX (exec_cores_count (&cores) / ranks, 1);
  return self;
}

const char *
exec_placement_host (const ExecPlacement *self, guint rank)
{
  return self->host_names[self->host_of[rank]];
}

guint
exec_placement_nodes (const ExecPlacement *self)
{
  if (self->ranks % self->hosts != 0)
    return 1;
  for (guint r = 0; r < self->ranks; r++)
    if (self->host_of[r] != r / (self->ranks / self->hosts))
      return 1;
  return self->hosts;
}

static void
digest (guint8 *out, const char *bytes, gsize length)
{
  gsize size = DIGEST_BYTES;
  g_autoptr (GChecksum) sum = g_checksum_new (G_CHECKSUM_SHA256);
  g_checksum_update (sum, (const guchar *)bytes, (gssize)length);
  g_checksum_get_digest (sum, out, &size);
}

static gboolean
fill_card (Card *card, GError **error)
{
  g_autoptr (GError) why = NULL;
  g_autoptr (GMappedFile) program = g_mapped_file_new ("/proc/self/exe", FALSE, &why);
  if (!program)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "/proc/self/exe: %s", why->message);
      return FALSE;
    }
  memset (card, 0, sizeof *card);
  g_strlcpy (card->host, own_host (), sizeof card->host);
  g_strlcpy (card->version, PACKAGE_VERSION, sizeof card->version);
  exec_cores_read (&card->cores);
  digest (card->program, g_mapped_file_get_contents (program), g_mapped_file_get_length (program));
  return TRUE;
}

/* Numbers the hosts. Ranks with the same host name are on one host, whatever their order. */
static void
number_hosts (ExecPlacement *self, const Card *cards)
{
  g_autoptr (GHashTable) known = g_hash_table_new (g_str_hash, g_str_equal);
  for (guint r = 0; r < self->ranks; r++)
    {
      gpointer number;
      if (g_hash_table_lookup_extended (known, cards[r].host, NULL, &number))
        {
          self->host_of[r] = GPOINTER_TO_UINT (number);
          continue;
        }
      self->host_of[r] = self->hosts;
      self->host_names[self->hosts] = g_strdup (cards[r].host);
      g_hash_table_insert (known, self->host_names[self->hosts], GUINT_TO_POINTER (self->hosts));
      self->hosts++;
    }
}

/* Divides the cores of each host among its ranks. Launchers bind each rank to cores of its own, or
 * none to any: the ranks of a host have the union of what they may use. */
static void
deal_cores (ExecPlacement *self, const Card *cards)
{
  self->threads = G_MAXUINT;
  for (guint h = 0; h < self->hosts; h++)
    {
      ExecCores all = { .quota = 0 };
      guint here = 0;
      for (guint r = 0; r < self->ranks; r++)
        if (self->host_of[r] == h)
          {
            exec_cores_join (&all, &cards[r].cores);
            here++;
          }
      self->threads = MIN (self->threads, MAX (exec_cores_count (&all) / here, 1));
      self->per_host = MAX (self->per_host, here);
    }
}

static gboolean
check_programs (const ExecPlacement *self, const Card *cards, GError **error)
{
  for (guint r = 1; r < self->ranks; r++)
    if (memcmp (cards[r].program, cards[0].program, DIGEST_BYTES) != 0)
      {
        g_set_error (
            error, PLAN_ERROR, PLAN_ERROR_INVALID,
            "rank %u on %s runs another program than rank 0 on %s: fsdplan %s with a SHA-256 "
            "of %02x%02x%02x%02x..., not %s with %02x%02x%02x%02x...: start the same one on "
            "every host",
            r, cards[r].host, cards[0].host, cards[r].version, cards[r].program[0],
            cards[r].program[1], cards[r].program[2], cards[r].program[3], cards[0].version,
            cards[0].program[0], cards[0].program[1], cards[0].program[2], cards[0].program[3]);
        return FALSE;
      }
  return TRUE;
}

ExecPlacement *
exec_placement_gather (ExecComm *comm, GError **error)
{
  g_autoptr (ExecPlacement) self = placement_new (comm->ranks);
  g_autofree Card *cards = g_new0 (Card, comm->ranks);
  Card own;
  if (!fill_card (&own, error)
      || !comm->ops->all_gather (comm, cards, &own, sizeof own, PLAN_DTYPE_U8, NULL, error))
    return NULL;
  for (guint r = 0; r < comm->ranks; r++)
    cards[r].host[NAME_BYTES - 1] = cards[r].version[NAME_BYTES - 1] = '\0';
  number_hosts (self, cards);
  deal_cores (self, cards);
  return check_programs (self, cards, error) ? g_steal_pointer (&self) : NULL;
}

char *
exec_placement_print (const ExecPlacement *self)
{
  GString *text = g_string_new (NULL);
  for (guint h = 0; h < MIN (self->hosts, SHOWN_HOSTS); h++)
    {
      const char *parting = ": ";
      g_string_append_printf (text, "%s%s", h ? "; " : "", self->host_names[h]);
      for (guint r = 0; r < self->ranks; r++)
        {
          guint last = r;
          if (self->host_of[r] != h)
            continue;
          while (last + 1 < self->ranks && self->host_of[last + 1] == h)
            last++;
          g_string_append_printf (text, last > r ? "%s%u-%u" : "%s%u", parting, r, last);
          parting = ", ";
          r = last;
        }
    }
  if (self->hosts > SHOWN_HOSTS)
    g_string_append_printf (text, "; and %u more hosts", self->hosts - SHOWN_HOSTS);
  return g_string_free (text, FALSE);
}

static gboolean refuse (const ExecPlacement *self, GError **error, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* Refuses a placement; the message ends with where the ranks are. */
static gboolean
refuse (const ExecPlacement *self, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  g_autofree char *where = exec_placement_print (self);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s (ranks on %s)", text, where);
  return FALSE;
}

gboolean
exec_placement_check (const ExecPlacement *self, const PlanCluster *cluster, GError **error)
{
  const gint64 needs = plan_cluster_devices (cluster), per_node = cluster->devices_per_node;
  if (needs != self->ranks)
    return refuse (self, error,
                   "the plan is for %" G_GINT64_FORMAT " ranks, %" G_GINT64_FORMAT
                   " x %" G_GINT64_FORMAT " of %s, and the launcher started %u: %" G_GINT64_FORMAT
                   " too %s",
                   needs, cluster->nodes, per_node, cluster->name, self->ranks,
                   ABS (needs - (gint64)self->ranks), needs > self->ranks ? "few" : "many");
  for (guint r = 0; r < self->ranks; r++)
    {
      const guint first = r / (guint)per_node * (guint)per_node;
      if (self->host_of[r] != self->host_of[first])
        return refuse (self, error,
                       "ranks %u and %u are of one node of the plan and lie on %s and %s: place "
                       "%" G_GINT64_FORMAT " ranks that follow one another on each host (mpirun "
                       "--map-by ppr:%" G_GINT64_FORMAT ":node, srun --distribution=block)",
                       first, r, exec_placement_host (self, first), exec_placement_host (self, r),
                       per_node, per_node);
      if (first > 0 && self->host_of[first] == self->host_of[first - 1])
        return refuse (self, error,
                       "ranks %u and %u are of two nodes of the plan and both lie on %s: %s has "
                       "%" G_GINT64_FORMAT " ranks per node",
                       first - 1, first, exec_placement_host (self, first), cluster->name,
                       per_node);
    }
  return TRUE;
}

gboolean
exec_placement_check_group (const ExecPlacement *self, guint size, GError **error)
{
  g_autofree guint *ranks_on = g_new0 (guint, self->hosts);
  guint most = 0;
  for (guint r = 0; r < self->ranks; r++)
    {
      const guint here = ++ranks_on[self->host_of[r]];
      most = MAX (most, here);
    }
  for (guint r = 0; size <= most && r < self->ranks; r++)
    {
      const guint first = r / size * size;
      if (self->host_of[r] != self->host_of[first])
        return refuse (self, error,
                       "ranks %u and %u are of one sharding group of %u, and lie on %s and %s: "
                       "place ranks that follow one another on the same host (mpirun --map-by "
                       "slot, srun --distribution=block)",
                       first, r, size, exec_placement_host (self, first),
                       exec_placement_host (self, r));
    }
  return TRUE;
}

/* Gives every rank the texts of rank 0 and rank `other`, up to TEXT_BYTES: by a sum to which only
 * these two contribute. */
static gboolean
exchange_texts (ExecComm *comm, guint other, const char *own, char **out_first, char **out_other,
                GError **error)
{
  g_autofree float *letters = g_new0 (float, 2 * TEXT_BYTES);
  const gsize length = MIN (strlen (own), TEXT_BYTES - 1);
  for (gsize i = 0; i < length; i++)
    {
      if (comm->rank == 0)
        letters[i] = (float)(guchar)own[i];
      if (comm->rank == other)
        letters[TEXT_BYTES + i] = (float)(guchar)own[i];
    }
  if (!comm->ops->all_reduce (comm, letters, 2 * TEXT_BYTES, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  g_autofree char *both = g_malloc (2 * TEXT_BYTES);
  for (gsize i = 0; i < 2 * TEXT_BYTES; i++)
    both[i] = (char)(guchar)letters[i];
  *out_first = g_strndup (both, TEXT_BYTES - 1);
  *out_other = g_strndup (both + TEXT_BYTES, TEXT_BYTES - 1);
  return TRUE;
}

/* Whether one of the KEY=VALUE lines has the key of `line`. */
static gboolean
has_key (char **lines, const char *line)
{
  const gsize length = strcspn (line, "=");
  for (; *lines; lines++)
    if (strncmp (*lines, line, length) == 0 && (*lines)[length] == '=')
      return TRUE;
  return FALSE;
}

/* The first line that differs, as "mbs=2, not mbs=1". The caller frees. */
static char *
difference (const char *first, const char *other)
{
  g_auto (GStrv) a = g_strsplit (first, "\n", -1);
  g_auto (GStrv) b = g_strsplit (other, "\n", -1);
  guint i = 0;
  while (a[i] && b[i] && g_str_equal (a[i], b[i]))
    i++;
  if (!a[i] && !b[i])
    return g_strdup_printf ("behind the first %d bytes of it", TEXT_BYTES - 1);
  if (b[i] && *b[i] && !has_key (a, b[i]))
    return g_strdup_printf ("%s, which rank 0 does not have", b[i]);
  if (a[i] && *a[i] && !has_key (b, a[i]))
    return g_strdup_printf ("no %s, which rank 0 has", a[i]);
  return g_strdup_printf ("%s, not %s", b[i] ? b[i] : "", a[i] ? a[i] : "");
}

gboolean
exec_placement_agree (const ExecPlacement *self, ExecComm *comm, const ExecAgreed *agreed,
                      guint n_agreed, GError **error)
{
  const gsize bytes = (gsize)n_agreed * DIGEST_BYTES;
  g_autofree guint8 *own = g_malloc0 (bytes), *all = g_malloc0 (bytes * comm->ranks);
  for (guint i = 0; i < n_agreed; i++)
    digest (own + i * DIGEST_BYTES, agreed[i].text, strlen (agreed[i].text));
  if (!comm->ops->all_gather (comm, all, own, bytes, PLAN_DTYPE_U8, NULL, error))
    return FALSE;
  for (guint i = 0; i < n_agreed; i++)
    for (guint r = 1; r < comm->ranks; r++)
      {
        g_autofree char *first = NULL, *other = NULL;
        if (memcmp (all + i * DIGEST_BYTES, all + r * bytes + i * DIGEST_BYTES, DIGEST_BYTES) == 0)
          continue;
        if (!exchange_texts (comm, r, agreed[i].text, &first, &other, error))
          return FALSE;
        g_autofree char *what = difference (first, other);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "rank %u on %s has another %s than rank 0 on %s: %s", r,
                     exec_placement_host (self, r), agreed[i].name, exec_placement_host (self, 0),
                     what);
        return FALSE;
      }
  return TRUE;
}
