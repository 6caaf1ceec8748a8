/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved stages form a ring. Each stage trades with the next and with the previous stage at
 * the same time, over two links. NCCL runs the ops of one communicator one after the other,
 * whatever streams they are on (ncclLaunchPrepare in its enqueue.cc), so the two links of a stage
 * need two communicators. Links use two of them alternately; a ring of an odd number of stages
 * needs a third one, for its last link. */
#include "config.h"

#include "exec/walk/links.h"

/* The number of the communicator of a link. With two stages, both links join the same two, and the
 * schedule uses the same name for a link on both of them. */
static guint
link_of (guint stage, guint stages, gboolean is_prev)
{
  const guint link = is_prev ? (stage + stages - 1) % stages : stage;

  if (stages == 2)
    return is_prev;
  return stages % 2 == 1 && link + 1 == stages ? 2 : link % 2;
}

ExecComm *
exec_links_find (ExecComm *all, const PlanGroup *group, GError **error)
{
  static const char *const names[] = { "link", "other link", "last link" };
  const gboolean is_prev = g_str_equal (group->name, "prev");
  const guint stages = group->size, n = stages > 2 && stages % 2 == 1 ? 3 : 2;
  ExecComm *made[G_N_ELEMENTS (names)];

  if (!is_prev && !g_str_equal (group->name, "next"))
    return exec_comm_group (all, group->name, group->size, group->stride, error);
  for (guint i = 0; i < n; i++)
    if (!(made[i] = exec_comm_group (all, names[i], group->size, group->stride, error)))
      return NULL;
  return made[link_of (all->rank / group->stride % stages, stages, is_prev)];
}
