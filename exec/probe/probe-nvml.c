/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, a library of NVIDIA's driver, loaded when the program runs. Its functions are declared
 * here, as of its version 11, so that it is not needed to build. */
#include "config.h"

#include "exec/probe/probe-private.h"

#include "planner/base/error.h"

#include <dlfcn.h>
#include <string.h>

#define NAME_BYTES 96
#define MAX_LINKS 18
#define DRIVER_NOT_LOADED 9

typedef struct nvmlDevice_st *Device;

typedef struct
{
  unsigned long long total, free, used;
} Memory;

typedef struct
{
  int (*init) (void);
  int (*shutdown) (void);
  const char *(*error_string) (int code);
  int (*count) (unsigned *out);
  int (*handle) (unsigned index, Device *out);
  int (*name) (Device device, char *out, unsigned length);
  int (*memory) (Device device, Memory *out);
  int (*capability) (Device device, int *out_major, int *out_minor);
  int (*link_state) (Device device, unsigned link, int *out_is_active);
  int (*link_version) (Device device, unsigned link, unsigned *out);
  int (*pcie_generation) (Device device, unsigned *out);
  int (*pcie_width) (Device device, unsigned *out);
  int (*power_limit) (Device device, unsigned *out_milliwatts);
} Nvml;

static const struct
{
  const char *name;
  gsize offset;
} symbols[] = {
  { "nvmlInit_v2", G_STRUCT_OFFSET (Nvml, init) },
  { "nvmlShutdown", G_STRUCT_OFFSET (Nvml, shutdown) },
  { "nvmlErrorString", G_STRUCT_OFFSET (Nvml, error_string) },
  { "nvmlDeviceGetCount_v2", G_STRUCT_OFFSET (Nvml, count) },
  { "nvmlDeviceGetHandleByIndex_v2", G_STRUCT_OFFSET (Nvml, handle) },
  { "nvmlDeviceGetName", G_STRUCT_OFFSET (Nvml, name) },
  { "nvmlDeviceGetMemoryInfo", G_STRUCT_OFFSET (Nvml, memory) },
  { "nvmlDeviceGetCudaComputeCapability", G_STRUCT_OFFSET (Nvml, capability) },
  { "nvmlDeviceGetNvLinkState", G_STRUCT_OFFSET (Nvml, link_state) },
  { "nvmlDeviceGetNvLinkVersion", G_STRUCT_OFFSET (Nvml, link_version) },
  { "nvmlDeviceGetMaxPcieLinkGeneration", G_STRUCT_OFFSET (Nvml, pcie_generation) },
  { "nvmlDeviceGetMaxPcieLinkWidth", G_STRUCT_OFFSET (Nvml, pcie_width) },
  { "nvmlDeviceGetPowerManagementLimit", G_STRUCT_OFFSET (Nvml, power_limit) },
};

/* Drivers' names, after "NVIDIA " or "Tesla ", of the devices in the catalogue. */
static const struct
{
  const char *name;
  const char *shipped;
} names[] = {
  { "V100-SXM2-16GB", "v100-16gb" },
  { "V100-SXM2-32GB", "v100-32gb" },
  { "V100-SXM3-32GB", "v100-32gb" },
  { "A100-SXM4-40GB", "a100-40gb" },
  { "A100-SXM4-80GB", "a100-80gb" },
  { "A100-PCIE-40GB", "a100-pcie-40gb" },
  { "A100 80GB PCIe", "a100-pcie-80gb" },
  { "A800-SXM4-80GB", "a800-80gb" },
  { "H100 80GB HBM3", "h100-80gb" },
  { "H100 PCIe", "h100-pcie" },
  { "H800", "h800-80gb" },
  { "H20", "h20-96gb" },
  { "H200", "h200-141gb" },
  { "GH200 480GB", "gh200-96gb" },
  { "B200", "b200" },
  { "B300 SXM6 AC", "b300" },
  { "GB200", "gb200" },
  { "GB300", "gb300" },
  { "RTX A6000", "rtxa6000" },
  { "L40S", "l40s" },
  { "L4", "l4" },
  { "A40", "a40" },
  { "A10", "a10" },
  { "GeForce RTX 3090", "rtx3090" },
  { "GeForce RTX 4090", "rtx4090" },
  { "GeForce RTX 5090", "rtx5090" },
  { "RTX 6000 Ada Generation", "rtx6000ada" },
  { "RTX PRO 6000 Blackwell Workstation Edition", "rtxpro6000" },
  { "RTX PRO 6000 Blackwell Server Edition", "rtxpro6000" },
};

const char *
exec_gpu_shipped (const char *name)
{
  if (g_str_has_prefix (name, "NVIDIA ") || g_str_has_prefix (name, "Tesla "))
    name = strchr (name, ' ') + 1;
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (g_str_equal (name, names[i].name))
      return names[i].shipped;
  return NULL;
}

static gboolean
refuse (const char *library, const char *call, const char *cause, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: %s: %s", library, call, cause);
  return FALSE;
}

static gboolean
find_symbols (void *handle, const char *library, Nvml *nvml, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (symbols); i++)
    {
      void *symbol = dlsym (handle, symbols[i].name);
      if (!symbol)
        return refuse (library, symbols[i].name, "this driver does not have it", error);
      memcpy (G_STRUCT_MEMBER_P (nvml, symbols[i].offset), &symbol, sizeof symbol);
    }
  return TRUE;
}

/* Bytes per second of one NVLink in one direction, by NVML's number of its version, which stands
 * for 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0. */
static double
link_rate (unsigned version)
{
  return version >= 7 ? 50e9 : version >= 2 ? 25e9 : 20e9;
}

static void
read_links (const Nvml *nvml, Device device, ExecGpu *gpu)
{
  for (unsigned link = 0; link < MAX_LINKS; link++)
    {
      unsigned version = 0;
      int is_active = 0;
      if (nvml->link_state (device, link, &is_active) != 0 || !is_active)
        continue;
      gpu->links++;
      if (nvml->link_version (device, link, &version) == 0)
        gpu->link_bytes_per_s = link_rate (version);
    }
  if (gpu->link_bytes_per_s == 0)
    gpu->links = 0; /* without their rate the number is of no use */
}

/* Reads a GPU. Name and memory must be there; the rest may be missing, as on virtual GPUs. */
static gboolean
read_gpu (const Nvml *nvml, const char *library, unsigned index, ExecGpu *gpu, GError **error)
{
  char name[NAME_BYTES] = "";
  Memory memory = { 0 };
  Device device;
  unsigned value;
  int major, minor, code;
  if ((code = nvml->handle (index, &device)) != 0
      || (code = nvml->name (device, name, sizeof name)) != 0
      || (code = nvml->memory (device, &memory)) != 0)
    {
      g_autofree char *call = g_strdup_printf ("GPU %u", index);
      return refuse (library, call, nvml->error_string (code), error);
    }
  name[sizeof name - 1] = '\0';
  *gpu = (ExecGpu){ .name = g_utf8_make_valid (name, -1), .memory_bytes = memory.total };
  if (nvml->capability (device, &major, &minor) == 0)
    gpu->compute_capability = 10 * major + minor;
  if (nvml->pcie_generation (device, &value) == 0)
    gpu->pcie_generation = value;
  if (nvml->pcie_width (device, &value) == 0)
    gpu->pcie_lanes = value;
  if (nvml->power_limit (device, &value) == 0)
    gpu->power_w = value / 1000;
  read_links (nvml, device, gpu);
  return TRUE;
}

static gboolean
read_all (const Nvml *nvml, const char *library, GArray *gpus, GError **error)
{
  unsigned n = 0;
  const int code = nvml->count (&n);
  if (code != 0)
    return refuse (library, "nvmlDeviceGetCount_v2", nvml->error_string (code), error);
  for (unsigned i = 0; i < n; i++)
    {
      ExecGpu gpu;
      if (!read_gpu (nvml, library, i, &gpu, error))
        return FALSE;
      g_array_append_val (gpus, gpu);
    }
  return TRUE;
}

static void
clear_gpu (gpointer gpu)
{
  g_free (((ExecGpu *)gpu)->name);
}

static gboolean
read_opened (void *handle, const char *library, GArray *gpus, GError **error)
{
  Nvml nvml;
  if (!find_symbols (handle, library, &nvml, error))
    return FALSE;
  const int code = nvml.init ();
  if (code == DRIVER_NOT_LOADED) /* the driver's library is installed, but there is no GPU for it */
    return TRUE;
  if (code != 0)
    return refuse (library, "nvmlInit_v2", nvml.error_string (code), error);
  const gboolean ok = read_all (&nvml, library, gpus, error);
  nvml.shutdown ();
  return ok;
}

GArray *
exec_gpus_read (const char *library, GError **error)
{
  g_autoptr (GArray) gpus = g_array_new (FALSE, TRUE, sizeof (ExecGpu));
  g_array_set_clear_func (gpus, clear_gpu);
  void *handle = dlopen (library, RTLD_LAZY | RTLD_LOCAL);
  if (!handle)
    return g_steal_pointer (&gpus);
  const gboolean ok = read_opened (handle, library, gpus, error);
  dlclose (handle);
  return ok ? g_steal_pointer (&gpus) : NULL;
}
