import js from "@eslint/js";

// The globals that the sources use, of browsers and of node.
const GLOBALS =
  "AbortController AbortSignal Blob Buffer MessageChannel MessageEvent TextDecoder URL WebAssembly Worker " +
  "atob console document performance process setTimeout";

export default [
  js.configs.recommended,
  {
    languageOptions: {
      ecmaVersion: 2023,
      globals: Object.fromEntries(GLOBALS.split(" ").map((name) => [name, "readonly"])),
    },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "max-len": ["error", { code: 110, ignorePattern: '^  "[A-Za-z0-9+/=]+";$' }],
      "max-lines": ["error", 250],
      "max-lines-per-function": ["error", 60],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
];
