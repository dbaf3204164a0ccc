{
  description = "Takes kernel-builder's place in tests: tells what a project hands to it, builds nothing";

  outputs =
    { self }:
    let
      inherit (builtins)
        all
        attrNames
        attrValues
        concatMap
        elem
        filter
        fromTOML
        isFunction
        pathExists
        readDir
        readFile
        replaceStrings
        ;

      # Relative paths of all files under a folder.
      list =
        root: below:
        let
          entries = readDir (root + below);
        in
        concatMap (
          name:
          if entries.${name} == "directory" then list root "${below}/${name}" else [ "${below}/${name}" ]
        ) (attrNames entries);

      # A package set in which each package is its own name, and only these exist.
      packages = builtins.listToAttrs (
        map (name: { inherit name; value = name; }) [ "einops" "numpy" "pillow" "pytest" "torch" ]
      );

      # Files that the build would look for, in build.toml's own words.
      wanted = toml: (toml.torch.src or [ ]) ++ concatMap (part: part.src) (attrValues (toml.kernel or { }));
    in
    {
      # The parameters are those of kernel-builder's function at the pinned revision: one more is an error there too.
      lib.genKernelFlakeOutputs =
        arguments@{
          path,
          self ? null,
          rev ? null,
          torchVersions ? (versions: versions),
          doGetKernelCheck ? true,
          pythonCheckInputs ? (_: [ ]),
          pythonNativeCheckInputs ? (_: [ ]),
        }:
        let
          toml = fromTOML (readFile (path + "/build.toml"));
          module = replaceStrings [ "-" ] [ "_" ] toml.general.name;
          extension = path + "/torch-ext/${module}";
        in
        {
          # Checked in here, since `self` is what this very set becomes.
          recorded =
            if self == null then
              throw "recorder: no self, so the build could not name its revision"
            else if rev != null then
              throw "recorder: rev is no longer taken"
            else if !isFunction torchVersions then
              throw "recorder: torchVersions is a list, not a function"
            else if !(toml.general ? backends) then
              throw "recorder: build.toml is of an edition without backends"
            else if !(pathExists (extension + "/__init__.py")) then
              throw "recorder: torch-ext/${module}/__init__.py is missing"
            else if pathExists (extension + "/${module}") then
              throw "recorder: torch-ext/${module}/${module} is not allowed"
            else
              {
                arguments = attrNames arguments;
                sameFolder = baseNameOf (toString path) == baseNameOf (toString self);
                checkInputs = pythonCheckInputs packages;
                nativeCheckInputs = pythonNativeCheckInputs packages;
                inherit doGetKernelCheck;
                inherit (toml) general;
                componentsAreComplete = all (part: part ? backend && part ? depends && part ? src) (
                  attrValues (toml.kernel or { })
                );
                missing = filter (file: !(pathExists (path + "/${file}"))) (wanted toml);
                headersNotListed = filter (
                  file:
                  builtins.match "/csrc/.*\\.(h|cuh|hpp)" file != null
                  && !(elem (builtins.substring 1 (builtins.stringLength file) file) (wanted toml))
                ) (list path "");
                files = list path "";
              };
        };
    };
}
