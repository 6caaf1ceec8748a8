/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file that NCCL writes to NCCL_TOPO_DUMP_FILE, as its src/graph/xml.cc does:
 *
 *   system > cpu > pci > (pci ...) > gpu > nvlink | c2c
 *          > nic > net
 *
 * The <pci> directly around <gpu> or <nic> is the card itself, outer ones are bridges; <nic> may
 * lie directly in <cpu>, where a virtual machine shows no more. Elements that newer versions put
 * inside gpu, nic and net are skipped; any other unknown element is refused, since GPUs could be in
 * it. */
#include "config.h"

#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/cluster/topology-private.h"

#include <string.h>

#define MAX_DEPTH 32
#define SWITCH_CLASS "0x068000" /* the PCI class of an NVSwitch */

typedef enum
{
  ELEMENT_NONE, /* around <system> */
  ELEMENT_SYSTEM,
  ELEMENT_CPU,
  ELEMENT_PCI,
  ELEMENT_GPU,
  ELEMENT_NVLINK,
  ELEMENT_C2C,
  ELEMENT_NIC,
  ELEMENT_NET,
  ELEMENT_OTHER,
} Element;

/* The elements, and in which others each may stand. */
static const struct
{
  const char *name;
  Element element;
  guint parents; /* a bit per element */
} elements[] = {
  { "system", ELEMENT_SYSTEM, 1u << ELEMENT_NONE },
  { "cpu", ELEMENT_CPU, 1u << ELEMENT_SYSTEM },
  { "pci", ELEMENT_PCI, 1u << ELEMENT_CPU | 1u << ELEMENT_PCI },
  { "gpu", ELEMENT_GPU, 1u << ELEMENT_PCI },
  { "nvlink", ELEMENT_NVLINK, 1u << ELEMENT_GPU },
  { "c2c", ELEMENT_C2C, 1u << ELEMENT_GPU },
  { "nic", ELEMENT_NIC, 1u << ELEMENT_CPU | 1u << ELEMENT_PCI },
  { "net", ELEMENT_NET, 1u << ELEMENT_NIC },
};

/* PCI ids of NVIDIA's shipped devices (pci.ids of 2026-08-22). */
static const struct
{
  guint id;
  const char *device;
} devices[] = {
  { 0x1db1, "v100-16gb" },      { 0x1df5, "v100-16gb" },      { 0x1db5, "v100-32gb" },
  { 0x1db8, "v100-32gb" },      { 0x20b0, "a100-40gb" },      { 0x20b2, "a100-80gb" },
  { 0x20b1, "a100-pcie-40gb" }, { 0x20f1, "a100-pcie-40gb" }, { 0x20b5, "a100-pcie-80gb" },
  { 0x20f3, "a800-80gb" },      { 0x2330, "h100-80gb" },      { 0x2331, "h100-pcie" },
  { 0x2324, "h800-80gb" },      { 0x2329, "h20-96gb" },       { 0x2335, "h200-141gb" },
  { 0x2342, "gh200-96gb" },     { 0x2901, "b200" },           { 0x2941, "gb200" },
  { 0x3182, "b300" },           { 0x31c2, "gb300" },          { 0x31c3, "gb300" },
  { 0x2230, "rtxa6000" },       { 0x26b9, "l40s" },           { 0x2684, "rtx4090" },
  { 0x2bb1, "rtxpro6000" },     { 0x2bb5, "rtxpro6000" },
};

/* NVIDIA's PCI vendor id. */
#define NVIDIA 0x10de

/* A <pci> that is open. */
typedef struct
{
  guint id; /* counted over the file */
  guint vendor, device;
  gint64 generation, lanes;
  char *busid;
} Bridge;

/* Where in the hierarchy a GPU or a port lies. */
typedef struct
{
  guint host, cpu, numa;
  guint depth; /* number of bridges above the card */
  guint bridges[MAX_DEPTH];
} Place;

/* An NVLink, until all GPUs are known. */
typedef struct
{
  guint gpu, line;
  char *target;
  gboolean to_switch, to_other;
} Link;

typedef struct
{
  PlanTopology *topology;
  GMarkupParseContext *context;
  GArray *stack;     /* Element */
  GArray *bridges;   /* Bridge, open */
  GArray *gpu_at;    /* Place */
  GArray *port_at;   /* Place */
  GPtrArray *busids; /* char *, of GPUs */
  GArray *links;     /* Link */
  GPtrArray *hosts;  /* char * */
  GArray *numas;     /* gint64: host << 32 | NUMA node */
  guint n_bridges, n_cpus;
  Place place; /* of the open <cpu> */
  gboolean has_system;
} Reader;

typedef struct
{
  const char **names, **values;
} Attributes;

static guint
line_of (const Reader *self)
{
  gint line, column;
  g_markup_parse_context_get_position (self->context, &line, &column);
  return (guint)line;
}

static const char *
find (const Attributes *attributes, const char *name)
{
  for (guint i = 0; attributes->names[i]; i++)
    if (g_str_equal (attributes->names[i], name))
      return attributes->values[i];
  return NULL;
}

static gboolean
refuse_missing (const Reader *self, const char *element, const char *name, GError **error)
{
  return plan_topology_refuse (error, line_of (self), "<%s> has no %s", element, name);
}

/* Reads a whole number, possibly hexadecimal; `initial` where the attribute is missing or empty. */
static gboolean
read_number (const Reader *self, const Attributes *attributes, const char *name, gint64 initial,
             gint64 max, gint64 *out, GError **error)
{
  const char *text = find (attributes, name);
  const gboolean is_hex = text && g_str_has_prefix (text, "0x");
  *out = initial;
  if (!text || *text == '\0')
    return TRUE;
  if (g_ascii_string_to_signed (is_hex ? text + 2 : text, is_hex ? 16 : 10, -1, max, out, NULL))
    return TRUE;
  g_autofree char *shown = plan_text_quote (text);
  return plan_topology_refuse (error, line_of (self),
                               "%s: %s is not a whole number of at most %" G_GINT64_FORMAT, name,
                               shown, max);
}

static gboolean
read_required (const Reader *self, const Attributes *attributes, const char *element,
               const char *name, gint64 max, gint64 *out, GError **error)
{
  const char *text = find (attributes, name);
  if (!text || *text == '\0')
    return refuse_missing (self, element, name, error);
  return read_number (self, attributes, name, 0, max, out, error);
}

/* Parses a generation: "32.0 GT/s PCIe" is 5; 0 where a virtual machine does not know it. */
static gboolean
read_generation (const Reader *self, const char *text, gint64 *out, GError **error)
{
  static const double rates[] = { 2.5, 5, 8, 16, 32, 64 };
  char *end = NULL;
  *out = 0;
  if (!text || *text == '\0' || g_str_has_prefix (text, "Unknown"))
    return TRUE;
  const double rate = g_ascii_strtod (text, &end);
  for (guint i = 0; i < G_N_ELEMENTS (rates) && g_str_has_prefix (end, " GT/s"); i++)
    if (rate == rates[i])
      *out = i + 1;
  if (*out > 0)
    return TRUE;
  g_autofree char *shown = plan_text_quote (text);
  return plan_topology_refuse (
      error, line_of (self), "link_speed: %s is not a rate of PCIe, as in '32.0 GT/s PCIe'", shown);
}

static guint
host_number (Reader *self, const char *hash)
{
  guint i;
  if (g_ptr_array_find_with_equal_func (self->hosts, hash, g_str_equal, &i))
    return i;
  g_ptr_array_add (self->hosts, g_strdup (hash));
  return self->hosts->len - 1;
}

static guint
numa_number (Reader *self, guint host, gint64 numa)
{
  const gint64 key = (gint64)host << 32 | (numa + 1);
  for (guint i = 0; i < self->numas->len; i++)
    if (g_array_index (self->numas, gint64, i) == key)
      return i;
  g_array_append_val (self->numas, key);
  return self->numas->len - 1;
}

/* The bandwidth, in B/s, that NCCL assumes between two processors (src/graph/topo.h of 2.30).
 * Family and model are as CPUID gives them, with extensions. */
static double
between_processors (const char *arch, const char *vendor, gint64 family, gint64 model)
{
  if (g_strcmp0 (arch, "arm64") == 0)
    return 6e9;
  if (g_strcmp0 (arch, "ppc64") == 0)
    return 32e9;
  if (g_strcmp0 (vendor, "AuthenticAMD") == 0)
    return family >= 0xbf ? 32e9 : family >= 0xaf ? 24e9 : 16e9;
  if (g_strcmp0 (vendor, "GenuineIntel") == 0 && family == 6)
    return model >= 0xcf ? 40e9 : model >= 0x8f ? 22e9 : model >= 0x55 ? 10e9 : 6e9;
  return 0;
}

static gboolean
open_cpu (Reader *self, const Attributes *attributes, GError **error)
{
  const char *hash = find (attributes, "host_hash");
  gint64 numa, family, model;
  if (!read_required (self, attributes, "cpu", "numaid", 1 << 20, &numa, error)
      || !read_number (self, attributes, "familyid", 0, G_MAXINT32, &family, error)
      || !read_number (self, attributes, "modelid", 0, G_MAXINT32, &model, error))
    return FALSE;
  self->place.host = host_number (self, hash ? hash : "");
  self->place.numa = numa_number (self, self->place.host, numa);
  self->place.cpu = self->n_cpus++;
  self->topology->between_bytes_per_s
      = between_processors (find (attributes, "arch"), find (attributes, "vendor"), family, model);
  return TRUE;
}

static gboolean
open_pci (Reader *self, const Attributes *attributes, GError **error)
{
  const char *busid = find (attributes, "busid");
  gint64 vendor, device;
  Bridge bridge = { .id = self->n_bridges };
  if (!busid || *busid == '\0')
    return refuse_missing (self, "pci", "busid", error);
  if (!read_generation (self, find (attributes, "link_speed"), &bridge.generation, error)
      || !read_number (self, attributes, "link_width", 0, 64, &bridge.lanes, error)
      || !read_number (self, attributes, "vendor", 0, 0xffff, &vendor, error)
      || !read_number (self, attributes, "device", 0, 0xffff, &device, error))
    return FALSE;
  self->n_bridges++;
  bridge.vendor = (guint)MAX (vendor, 0);
  bridge.device = (guint)MAX (device, 0);
  bridge.busid = g_strdup (busid);
  g_array_append_val (self->bridges, bridge);
  return TRUE;
}

/* The place of the card whose <pci> is the innermost. */
static Place
place_here (const Reader *self)
{
  Place place = self->place;
  place.depth = self->bridges->len > 0 ? self->bridges->len - 1 : 0;
  for (guint i = 0; i < place.depth; i++)
    place.bridges[i] = g_array_index (self->bridges, Bridge, i).id;
  return place;
}

static const char *
device_of (const Bridge *card)
{
  for (guint i = 0; card->vendor == NVIDIA && i < G_N_ELEMENTS (devices); i++)
    if (devices[i].id == card->device)
      return devices[i].device;
  return NULL;
}

/* Finds a GPU of a host; another host may have one at the same place on its bus. */
static gboolean
find_gpu (const Reader *self, guint host, const char *busid, guint *out_gpu)
{
  for (guint i = 0; i < self->busids->len; i++)
    if (g_array_index (self->gpu_at, Place, i).host == host
        && g_str_equal (self->busids->pdata[i], busid))
      {
        *out_gpu = i;
        return TRUE;
      }
  return FALSE;
}

static gboolean
open_gpu (Reader *self, const Attributes *attributes, GError **error)
{
  const Bridge *card = &g_array_index (self->bridges, Bridge, self->bridges->len - 1);
  const Place place = place_here (self);
  gint64 dev, capability;
  guint twin;
  if (card->vendor != 0 && card->vendor != NVIDIA)
    return plan_topology_refuse (error, line_of (self),
                                 "the GPU at %s is of maker %#x: only NVIDIA's (0x10de) are known",
                                 card->busid, card->vendor);
  if (!read_required (self, attributes, "gpu", "dev", 1 << 20, &dev, error)
      || !read_number (self, attributes, "sm", 0, 999, &capability, error))
    return FALSE;
  if (capability > 0 && capability < 10)
    return plan_topology_refuse (error, line_of (self),
                                 "sm: %" G_GINT64_FORMAT " is no compute capability such as 90",
                                 capability);
  if (self->topology->gpus->len == PLAN_TOPOLOGY_MAX)
    return plan_topology_refuse (error, line_of (self), "there are more than %d GPUs",
                                 PLAN_TOPOLOGY_MAX);
  if (find_gpu (self, place.host, card->busid, &twin))
    return plan_topology_refuse (error, line_of (self), "a second GPU at %s", card->busid);
  const PlanTopologyGpu gpu = { .device = device_of (card),
                                .pci_device = card->device,
                                .compute_capability = MAX (capability, 0),
                                .pcie_generation = card->generation,
                                .pcie_lanes = MAX (card->lanes, 0),
                                .host = place.host,
                                .numa = place.numa };
  g_array_append_val (self->topology->gpus, gpu);
  g_array_append_val (self->gpu_at, place);
  g_ptr_array_add (self->busids, g_strdup (card->busid));
  return TRUE;
}

static gboolean
open_nvlink (Reader *self, const Attributes *attributes, GError **error)
{
  const guint gpu = self->topology->gpus->len - 1;
  const char *target = find (attributes, "target"), *class = find (attributes, "tclass");
  gint64 count;
  if (!target || *target == '\0')
    return refuse_missing (self, "nvlink", "target", error);
  if (!read_required (self, attributes, "nvlink", "count", 64, &count, error))
    return FALSE;
  if (count < 1)
    return plan_topology_refuse (error, line_of (self), "count: an nvlink of no links");
  const Link link = { .gpu = gpu,
                      .line = line_of (self),
                      .target = g_strdup (target),
                      .to_switch = g_strcmp0 (class, SWITCH_CLASS) == 0,
                      .to_other = class != NULL };
  g_array_append_val (self->links, link);
  g_array_index (self->topology->gpus, PlanTopologyGpu, gpu).links += count;
  return TRUE;
}

/* Opens a <net>. A port without a <pci> of its own is as far away as the processor. */
static gboolean
open_net (Reader *self, const Attributes *attributes, GError **error)
{
  const char *name = find (attributes, "name");
  const Place place = place_here (self);
  gint64 megabits;
  if (!name || *name == '\0')
    return refuse_missing (self, "net", "name", error);
  if (!read_required (self, attributes, "net", "speed", 100000000, &megabits, error))
    return FALSE;
  if (megabits < 1)
    return plan_topology_refuse (error, line_of (self), "speed: a port of no Mbit/s");
  if (self->topology->ports->len == PLAN_TOPOLOGY_MAX)
    return plan_topology_refuse (error, line_of (self), "there are more than %d ports",
                                 PLAN_TOPOLOGY_MAX);
  const PlanTopologyPort port
      = { .name = g_strdup (name), .bytes_per_s = 1e6 / 8 * (double)megabits, .host = place.host };
  g_array_append_val (self->topology->ports, port);
  g_array_append_val (self->port_at, place);
  return TRUE;
}

static gboolean
open_system (Reader *self, const Attributes *attributes, GError **error)
{
  gint64 version;
  if (self->has_system)
    return plan_topology_refuse (error, line_of (self), "a second <system>");
  self->has_system = TRUE;
  if (!read_required (self, attributes, "system", "version", 1000, &version, error))
    return FALSE;
  return version == 1
         || plan_topology_refuse (error, line_of (self),
                                  "version %" G_GINT64_FORMAT " of the format: NCCL's is 1",
                                  version);
}

static gboolean
open_element (Reader *self, Element element, const Attributes *attributes, GError **error)
{
  if (self->stack->len >= MAX_DEPTH)
    return plan_topology_refuse (error, line_of (self), "more than %d elements in one another",
                                 MAX_DEPTH);
  switch (element)
    {
    case ELEMENT_SYSTEM:
      return open_system (self, attributes, error);
    case ELEMENT_CPU:
      return open_cpu (self, attributes, error);
    case ELEMENT_PCI:
      return open_pci (self, attributes, error);
    case ELEMENT_GPU:
      return open_gpu (self, attributes, error);
    case ELEMENT_NVLINK:
      return open_nvlink (self, attributes, error);
    case ELEMENT_NET:
      return open_net (self, attributes, error);
    case ELEMENT_C2C:
      g_array_index (self->topology->gpus, PlanTopologyGpu, self->topology->gpus->len - 1).has_c2c
          = TRUE;
      return TRUE;
    case ELEMENT_NONE:
    case ELEMENT_NIC:
    case ELEMENT_OTHER:
      return TRUE;
    }
  return TRUE;
}

/* Finds which element a name is inside `parent`; FALSE where it may not stand there. */
static gboolean
know (const char *name, Element parent, Element *out)
{
  *out = ELEMENT_OTHER;
  if (parent == ELEMENT_OTHER)
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (elements); i++)
    if (g_str_equal (name, elements[i].name))
      {
        *out = elements[i].element;
        return elements[i].parents & 1u << parent;
      }
  return parent >= ELEMENT_GPU;
}

static void
start (GMarkupParseContext *context, const char *name, const char **names, const char **values,
       gpointer user_data, GError **error)
{
  Reader *self = user_data;
  const Element parent = g_array_index (self->stack, Element, self->stack->len - 1);
  const Attributes attributes = { names, values };
  Element element;
  self->context = context;
  if (!know (name, parent, &element))
    {
      const char *outer = g_markup_parse_context_get_element_stack (context)->next
                              ? g_markup_parse_context_get_element_stack (context)->next->data
                              : NULL;
      g_autofree char *shown = plan_text_quote (name);
      plan_topology_refuse (
          error, line_of (self),
          outer ? "element %s cannot stand in <%s>"
                : "element %s cannot stand here: NCCL's topology begins with <system>",
          shown, outer);
      return;
    }
  if (open_element (self, element, &attributes, error))
    g_array_append_val (self->stack, element);
}

static void
end (GMarkupParseContext *context G_GNUC_UNUSED, const char *name G_GNUC_UNUSED, gpointer user_data,
     GError **error G_GNUC_UNUSED)
{
  Reader *self = user_data;
  const Element element = g_array_index (self->stack, Element, self->stack->len - 1);
  g_array_set_size (self->stack, self->stack->len - 1);
  if (element == ELEMENT_PCI)
    g_array_set_size (self->bridges, self->bridges->len - 1);
}

static void
text_between (GMarkupParseContext *context, const char *text, gsize length, gpointer user_data,
              GError **error)
{
  Reader *self = user_data;
  self->context = context;
  g_autofree char *word = g_strstrip (g_strndup (text, length));
  g_autofree char *shown = plan_text_quote (word);
  if (*word)
    plan_topology_refuse (error, line_of (self), "text between elements: %s", shown);
}

static PlanPath
path_between (const Place *gpu, const Place *port)
{
  guint common = 0;
  if (gpu->cpu != port->cpu)
    return gpu->numa == port->numa ? PLAN_PATH_NODE : PLAN_PATH_SYS;
  while (common < gpu->depth && common < port->depth
         && gpu->bridges[common] == port->bridges[common])
    common++;
  if (common == 0)
    return PLAN_PATH_PHB;
  return gpu->depth == common && port->depth == common ? PLAN_PATH_PIX : PLAN_PATH_PXB;
}

static void
find_paths (Reader *self)
{
  for (guint g = 0; g < self->gpu_at->len; g++)
    for (guint p = 0; p < self->port_at->len; p++)
      {
        const guint8 path = (guint8)path_between (&g_array_index (self->gpu_at, Place, g),
                                                  &g_array_index (self->port_at, Place, p));
        g_byte_array_append (self->topology->paths, &path, 1);
      }
}

static void
join (PlanTopology *topology, guint a, guint b)
{
  for (guint i = 0; a != b && i < topology->gpus->len; i++)
    if (g_array_index (topology->gpus, PlanTopologyGpu, i).island == b)
      g_array_index (topology->gpus, PlanTopologyGpu, i).island = a;
}

/* Finds the islands, the GPUs that NVLink joins: through switches all GPUs that reach one,
 * otherwise those that links lead to. A link to a GPU that the file lacks is ignored, as NCCL had
 * that GPU in no communicator. */
static gboolean
join_islands (Reader *self, GError **error)
{
  PlanTopology *topology = self->topology;
  gint first_switched = -1;
  for (guint g = 0; g < topology->gpus->len; g++)
    g_array_index (topology->gpus, PlanTopologyGpu, g).island = g;
  for (guint i = 0; i < self->links->len; i++)
    {
      const Link *link = &g_array_index (self->links, Link, i);
      PlanTopologyGpu *gpu = &g_array_index (topology->gpus, PlanTopologyGpu, link->gpu);
      guint target;
      if (link->to_switch)
        {
          gpu->has_switch = TRUE;
          first_switched = first_switched < 0 ? (gint)link->gpu : first_switched;
          target = (guint)first_switched;
        }
      else if (!find_gpu (self, gpu->host, link->target, &target))
        {
          g_autofree char *shown = plan_text_quote (link->target);
          if (!link->to_other)
            return plan_topology_refuse (
                error, link->line,
                "target: %s is no GPU of this file, and no tclass says what it is", shown);
          continue;
        }
      join (topology, g_array_index (topology->gpus, PlanTopologyGpu, target).island, gpu->island);
    }
  return TRUE;
}

static void
clear_bridge (gpointer bridge)
{
  g_free (((Bridge *)bridge)->busid);
}

static void
clear_link (gpointer link)
{
  g_free (((Link *)link)->target);
}

static void
reader_init (Reader *self, PlanTopology *topology)
{
  const Element none = ELEMENT_NONE;
  *self = (Reader){ .topology = topology,
                    .stack = g_array_new (FALSE, FALSE, sizeof (Element)),
                    .bridges = g_array_new (FALSE, FALSE, sizeof (Bridge)),
                    .gpu_at = g_array_new (FALSE, FALSE, sizeof (Place)),
                    .port_at = g_array_new (FALSE, FALSE, sizeof (Place)),
                    .busids = g_ptr_array_new_with_free_func (g_free),
                    .links = g_array_new (FALSE, FALSE, sizeof (Link)),
                    .hosts = g_ptr_array_new_with_free_func (g_free),
                    .numas = g_array_new (FALSE, FALSE, sizeof (gint64)) };
  g_array_set_clear_func (self->bridges, clear_bridge);
  g_array_set_clear_func (self->links, clear_link);
  g_array_append_val (self->stack, none);
}

static void
reader_clear (Reader *self)
{
  g_array_unref (self->stack);
  g_array_unref (self->bridges);
  g_array_unref (self->gpu_at);
  g_array_unref (self->port_at);
  g_ptr_array_unref (self->busids);
  g_array_unref (self->links);
  g_ptr_array_unref (self->hosts);
  g_array_unref (self->numas);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Reader, reader_clear)

gboolean
plan_topology_read_xml (PlanTopology *self, const char *text, GError **error)
{
  static const GMarkupParser parser
      = { .start_element = start, .end_element = end, .text = text_between };
  g_auto (Reader) reader;
  reader_init (&reader, self);
  g_autoptr (GMarkupParseContext) context = g_markup_parse_context_new (&parser, 0, &reader, NULL);
  g_autoptr (GError) cause = NULL;
  if (!g_markup_parse_context_parse (context, text, -1, &cause)
      || !g_markup_parse_context_end_parse (context, &cause))
    {
      if (cause->domain != G_MARKUP_ERROR)
        g_propagate_error (error, g_steal_pointer (&cause));
      else
        {
          gint line, column;
          g_markup_parse_context_get_position (context, &line, &column);
          plan_topology_refuse (error, (guint)line, "not XML: %s", cause->message);
        }
      return FALSE;
    }
  if (self->gpus->len == 0)
    return plan_topology_refuse (error, line_of (&reader), "there is no <gpu> in it");
  if (!join_islands (&reader, error))
    return FALSE;
  find_paths (&reader);
  self->hosts = reader.hosts->len;
  self->numa_nodes = reader.numas->len;
  return TRUE;
}
