# Managed by kernelgen: an update merges your changes here. flake.lock pins the revision of kernel-builder.
{
  inputs.kernel-builder.url = "github:huggingface/kernels";

  outputs =
    { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
      # Python packages that tests/ import beside torch, kernels and pytest, for example `ps: [ ps.numpy ]`.
      pythonCheckInputs = ps: [ ];
    };
}
