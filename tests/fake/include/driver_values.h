/* Names and values of the CUDA runtime's enums as lists of X(name, value), and the fields of a
 * device's properties as X(type, name, dimension): driver_types.h makes types of them, and
 * tests/fake/real-headers.c holds each against the toolkit's own. */
#pragma once

#define FAKE_CUDART_VERSION 13000

#define FAKE_CUDA_ERRORS(X) \
  X (cudaSuccess, 0) \
  X (cudaErrorInvalidValue, 1) \
  X (cudaErrorMemoryAllocation, 2) \
  X (cudaErrorInvalidConfiguration, 9) \
  X (cudaErrorInvalidMemcpyDirection, 21) \
  X (cudaErrorInsufficientDriver, 35) \
  X (cudaErrorNoDevice, 100) \
  X (cudaErrorInvalidDevice, 101) \
  X (cudaErrorECCUncorrectable, 214) \
  X (cudaErrorNvlinkUncorrectable, 220) \
  X (cudaErrorInvalidResourceHandle, 400) \
  X (cudaErrorNotReady, 600) \
  X (cudaErrorIllegalAddress, 700) \
  X (cudaErrorLaunchTimeout, 702) \
  X (cudaErrorPeerAccessAlreadyEnabled, 704) \
  X (cudaErrorPeerAccessNotEnabled, 705) \
  X (cudaErrorAssert, 710) \
  X (cudaErrorHardwareStackError, 714) \
  X (cudaErrorIllegalInstruction, 715) \
  X (cudaErrorMisalignedAddress, 716) \
  X (cudaErrorInvalidAddressSpace, 717) \
  X (cudaErrorInvalidPc, 718) \
  X (cudaErrorLaunchFailure, 719) \
  X (cudaErrorNotPermitted, 800) \
  X (cudaErrorNotSupported, 801) \
  X (cudaErrorStreamCaptureUnsupported, 900) \
  X (cudaErrorStreamCaptureInvalidated, 901) \
  X (cudaErrorStreamCaptureUnmatched, 903) \
  X (cudaErrorStreamCaptureUnjoined, 904) \
  X (cudaErrorStreamCaptureIsolation, 905) \
  X (cudaErrorStreamCaptureImplicit, 906) \
  X (cudaErrorCapturedEvent, 907) \
  X (cudaErrorUnknown, 999)

#define FAKE_CUDA_MEMCPY_KINDS(X) \
  X (cudaMemcpyHostToHost, 0) \
  X (cudaMemcpyHostToDevice, 1) \
  X (cudaMemcpyDeviceToHost, 2) \
  X (cudaMemcpyDeviceToDevice, 3) \
  X (cudaMemcpyDefault, 4)

#define FAKE_CUDA_DEVICE_ATTRIBUTES(X) \
  X (cudaDevAttrMaxThreadsPerBlock, 1) \
  X (cudaDevAttrMaxGridDimY, 6) \
  X (cudaDevAttrMaxSharedMemoryPerBlock, 8) \
  X (cudaDevAttrWarpSize, 10) \
  X (cudaDevAttrMultiProcessorCount, 16) \
  X (cudaDevAttrL2CacheSize, 38) \
  X (cudaDevAttrMaxThreadsPerMultiProcessor, 39) \
  X (cudaDevAttrUnifiedAddressing, 41) \
  X (cudaDevAttrComputeCapabilityMajor, 75) \
  X (cudaDevAttrComputeCapabilityMinor, 76) \
  X (cudaDevAttrStreamPrioritiesSupported, 78) \
  X (cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81) \
  X (cudaDevAttrMaxSharedMemoryPerBlockOptin, 97)

#define FAKE_CUDA_FUNCTION_ATTRIBUTES(X) \
  X (cudaFuncAttributeMaxDynamicSharedMemorySize, 8) \
  X (cudaFuncAttributePreferredSharedMemoryCarveout, 9)

#define FAKE_CUDA_MEMORY_TYPES(X) \
  X (cudaMemoryTypeUnregistered, 0) \
  X (cudaMemoryTypeHost, 1) \
  X (cudaMemoryTypeDevice, 2)

#define FAKE_CUDA_CAPTURE_MODES(X) \
  X (cudaStreamCaptureModeGlobal, 0) \
  X (cudaStreamCaptureModeThreadLocal, 1) \
  X (cudaStreamCaptureModeRelaxed, 2)

#define FAKE_CUDA_CAPTURE_STATES(X) \
  X (cudaStreamCaptureStatusNone, 0) \
  X (cudaStreamCaptureStatusActive, 1) \
  X (cudaStreamCaptureStatusInvalidated, 2)

/* Macros in the real headers. */
#define FAKE_CUDA_FLAGS(X) \
  X (cudaStreamDefault, 0) \
  X (cudaStreamNonBlocking, 1) \
  X (cudaEventDefault, 0) \
  X (cudaEventBlockingSync, 1) \
  X (cudaEventDisableTiming, 2) \
  X (cudaHostAllocDefault, 0) \
  X (cudaHostAllocPortable, 1) \
  X (cudaHostAllocMapped, 2)

#define FAKE_CUDA_PROPERTIES(X) \
  X (char, name, [256]) \
  X (size_t, totalGlobalMem, ) \
  X (size_t, sharedMemPerBlock, ) \
  X (int, warpSize, ) \
  X (int, maxThreadsPerBlock, ) \
  X (int, major, ) \
  X (int, minor, ) \
  X (int, multiProcessorCount, ) \
  X (int, pciBusID, ) \
  X (int, pciDeviceID, ) \
  X (int, pciDomainID, ) \
  X (int, memoryBusWidth, ) \
  X (int, l2CacheSize, ) \
  X (int, maxThreadsPerMultiProcessor, ) \
  X (size_t, sharedMemPerBlockOptin, )
