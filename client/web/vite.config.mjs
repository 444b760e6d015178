import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

// The gateway's Content-Security-Policy is default-src 'self': nothing may be inlined, neither scripts nor data: addresses.
export default defineConfig({
  root: here('.'),
  base: './',
  resolve: { alias: { '@': here('src') } },
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  build: {
    outDir: process.env.DEX_WEB_OUT ?? here('../../build/web'),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    reportCompressedSize: false,
  },
  test: {
    globals: true,
    include: [here('../../tests/unit/client/web') + '/**/*.test.ts'],
    environment: 'node',
  },
  // For working on it: npx vite, beside a running dexd whose HTTP address is in DEX_HTTP.
  server: {
    proxy: { '/rpc': process.env.DEX_HTTP ?? 'http://127.0.0.1:8080', '/adapters': process.env.DEX_HTTP ?? 'http://127.0.0.1:8080' },
    fs: { allow: [here('../..')] },
  },
});
