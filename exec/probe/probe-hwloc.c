/* SPDX-License-Identifier: Apache-2.0 */
/* What hwloc knows: packages, cores, NUMA nodes, caches, memory, NVSwitches. */
#include "config.h"

#include "exec/probe/probe-private.h"
#include "planner/base/error.h"

#include <hwloc.h>

#define NVIDIA 0x10de
#define CLASS_BRIDGE_OTHER 0x0680 /* the PCI class of an NVSwitch */

/* Components of hwloc that are not loaded: those that ask drivers for what NVML is asked for, and
 * pci, whose library leaks memory; network cards are found by the kernel. */
static const char *const left_out[]
    = { "cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "pci" };

typedef struct hwloc_topology Topology;
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Topology, hwloc_topology_destroy)

gboolean
exec_host_has_topology (void)
{
  return TRUE;
}

static gint64
count (Topology *topology, hwloc_obj_type_t type)
{
  return MAX (hwloc_get_nbobjs_by_type (topology, type), 0);
}

/* Total size of all caches of the last level. */
static guint64
cache_bytes (Topology *topology)
{
  static const hwloc_obj_type_t levels[]
      = { HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE };
  guint64 sum = 0;
  for (guint i = 0; i < G_N_ELEMENTS (levels) && sum == 0; i++)
    for (hwloc_obj_t cache = NULL;
         (cache = hwloc_get_next_obj_by_type (topology, levels[i], cache));)
      sum += cache->attr->cache.size;
  return sum;
}

static gint64
nvswitches (Topology *topology)
{
  gint64 n = 0;
  for (hwloc_obj_t card = NULL; (card = hwloc_get_next_pcidev (topology, card));)
    n += card->attr->pcidev.vendor_id == NVIDIA
         && card->attr->pcidev.class_id == CLASS_BRIDGE_OTHER;
  return n;
}

static Topology *
load (const char *xml)
{
  g_autoptr (Topology) self = NULL;
  if (hwloc_topology_init (&self) != 0 || (xml && hwloc_topology_set_xml (self, xml) != 0))
    return NULL;
  for (guint i = 0; i < G_N_ELEMENTS (left_out); i++)
    hwloc_topology_set_components (self, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out[i]);
  hwloc_topology_set_io_types_filter (self, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load (self) != 0)
    return NULL;
  return g_steal_pointer (&self);
}

gboolean
exec_host_read_topology (ExecHost *self, const char *xml, GError **error)
{
  g_autoptr (Topology) topology = load (xml);
  if (!topology)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: hwloc cannot read the topology",
                   xml ? xml : "local");
      return FALSE;
    }
  const hwloc_obj_t package = hwloc_get_obj_by_type (topology, HWLOC_OBJ_PACKAGE, 0);
  const char *model = package ? hwloc_obj_get_info_by_name (package, "CPUModel") : NULL;
  self->cores = count (topology, HWLOC_OBJ_CORE);
  self->sockets = count (topology, HWLOC_OBJ_PACKAGE);
  self->numa_nodes = count (topology, HWLOC_OBJ_NUMANODE);
  self->cache_bytes = cache_bytes (topology);
  self->nvswitches = nvswitches (topology);
  if (hwloc_get_root_obj (topology)->total_memory > 0)
    self->memory_bytes = hwloc_get_root_obj (topology)->total_memory;
  if (xml)
    self->processors = count (topology, HWLOC_OBJ_PU);
  if (model)
    {
      g_free (self->processor);
      self->processor = g_strdup (model);
    }
  g_free (self->source);
  self->source = g_strdup ("hwloc");
  return TRUE;
}
