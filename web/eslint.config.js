import js from "@eslint/js";

// The globals that the sources use, of browsers and of node.
const GLOBALS =
  "AbortController AbortSignal Blob Buffer MessageChannel MessageEvent TextDecoder URL WebAssembly Worker " +
  "atob console document performance process setTimeout";

// The globals of a browser that the page uses.
const BROWSER =
  "Element Event HTMLElement HTMLInputElement HTMLSelectElement IntersectionObserver KeyboardEvent " +
  "ResizeObserver URLSearchParams addEventListener clearInterval fetch history localStorage location " +
  "matchMedia navigator window";

/** @param {string} list */
const readonly = (list) => Object.fromEntries(list.split(" ").map((name) => [name, "readonly"]));

export default [
  js.configs.recommended,
  {
    languageOptions: {
      ecmaVersion: 2023,
      globals: readonly(GLOBALS),
    },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "max-len": ["error", { code: 110, ignorePattern: '^  "[A-Za-z0-9+/=]+";$' }],
      "max-lines": ["error", 300],
      "max-lines-per-function": ["error", 60],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
  { files: ["src/latent_tokens/page/js/**"], languageOptions: { globals: readonly(BROWSER) } },
];
