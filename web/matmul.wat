;; The matrix product out = x . weights, with SIMD: 4 rows by 8 columns at a time, in float32.
;;
;; All matrices are row by row. `rows` is a multiple of 4 and `columns` a multiple of 8, so nothing is left over.
;; Every element is the sum over k in ascending order, each product and each sum rounded to float32. The plain
;; implementation in kernel.js adds in the same order, so both return the same bits.
(module
  (import "engine" "memory" (memory 1))
  (func (export "matmul")
    (param $x i32) (param $weights i32) (param $out i32) ;; addresses
    (param $rows i32) (param $inner i32) (param $columns i32)
    (local $x_stride i32) (local $stride i32)            ;; bytes of a row of x, and of weights and out
    (local $x_end i32) (local $column i32) (local $k_end i32)
    (local $x_k i32) (local $w_k i32) (local $out_row i32)
    (local $w0 v128) (local $w1 v128) (local $value v128)
    (local $a0 v128) (local $a1 v128) (local $b0 v128) (local $b1 v128) ;; the sums of rows a to d,
    (local $c0 v128) (local $c1 v128) (local $d0 v128) (local $d1 v128) ;; columns 0-3 and 4-7

    (local.set $x_stride (i32.shl (local.get $inner) (i32.const 2)))
    (local.set $stride (i32.shl (local.get $columns) (i32.const 2)))
    (local.set $x_end (i32.add (local.get $x) (i32.mul (local.get $rows) (local.get $x_stride))))

    (loop $four_rows
      (local.set $column (i32.const 0))
      (loop $eight_columns
        (local.set $a0 (v128.const f32x4 0 0 0 0)) (local.set $a1 (v128.const f32x4 0 0 0 0))
        (local.set $b0 (v128.const f32x4 0 0 0 0)) (local.set $b1 (v128.const f32x4 0 0 0 0))
        (local.set $c0 (v128.const f32x4 0 0 0 0)) (local.set $c1 (v128.const f32x4 0 0 0 0))
        (local.set $d0 (v128.const f32x4 0 0 0 0)) (local.set $d1 (v128.const f32x4 0 0 0 0))

        ;; Sum over k: the row k of the weights times the column k of the four rows.
        (local.set $x_k (local.get $x))
        (local.set $k_end (i32.add (local.get $x) (local.get $x_stride)))
        (local.set $w_k (i32.add (local.get $weights) (local.get $column)))
        (loop $k
          (local.set $w0 (v128.load (local.get $w_k)))
          (local.set $w1 (v128.load offset=16 (local.get $w_k)))

          (local.set $value (v128.load32_splat (local.get $x_k)))
          (local.set $a0 (f32x4.add (local.get $a0) (f32x4.mul (local.get $value) (local.get $w0))))
          (local.set $a1 (f32x4.add (local.get $a1) (f32x4.mul (local.get $value) (local.get $w1))))

          (local.set $value (v128.load32_splat (i32.add (local.get $x_k) (local.get $x_stride))))
          (local.set $b0 (f32x4.add (local.get $b0) (f32x4.mul (local.get $value) (local.get $w0))))
          (local.set $b1 (f32x4.add (local.get $b1) (f32x4.mul (local.get $value) (local.get $w1))))

          (local.set $value
            (v128.load32_splat (i32.add (local.get $x_k) (i32.shl (local.get $x_stride) (i32.const 1)))))
          (local.set $c0 (f32x4.add (local.get $c0) (f32x4.mul (local.get $value) (local.get $w0))))
          (local.set $c1 (f32x4.add (local.get $c1) (f32x4.mul (local.get $value) (local.get $w1))))

          (local.set $value
            (v128.load32_splat (i32.add (local.get $x_k) (i32.mul (local.get $x_stride) (i32.const 3)))))
          (local.set $d0 (f32x4.add (local.get $d0) (f32x4.mul (local.get $value) (local.get $w0))))
          (local.set $d1 (f32x4.add (local.get $d1) (f32x4.mul (local.get $value) (local.get $w1))))

          (local.set $x_k (i32.add (local.get $x_k) (i32.const 4)))
          (local.set $w_k (i32.add (local.get $w_k) (local.get $stride)))
          (br_if $k (i32.lt_u (local.get $x_k) (local.get $k_end))))

        (local.set $out_row (i32.add (local.get $out) (local.get $column)))
        (v128.store (local.get $out_row) (local.get $a0))
        (v128.store offset=16 (local.get $out_row) (local.get $a1))
        (local.set $out_row (i32.add (local.get $out_row) (local.get $stride)))
        (v128.store (local.get $out_row) (local.get $b0))
        (v128.store offset=16 (local.get $out_row) (local.get $b1))
        (local.set $out_row (i32.add (local.get $out_row) (local.get $stride)))
        (v128.store (local.get $out_row) (local.get $c0))
        (v128.store offset=16 (local.get $out_row) (local.get $c1))
        (local.set $out_row (i32.add (local.get $out_row) (local.get $stride)))
        (v128.store (local.get $out_row) (local.get $d0))
        (v128.store offset=16 (local.get $out_row) (local.get $d1))

        (local.set $column (i32.add (local.get $column) (i32.const 32)))
        (br_if $eight_columns (i32.lt_u (local.get $column) (local.get $stride))))

      (local.set $x (i32.add (local.get $x) (i32.shl (local.get $x_stride) (i32.const 2))))
      (local.set $out (i32.add (local.get $out) (i32.shl (local.get $stride) (i32.const 2))))
      (br_if $four_rows (i32.lt_u (local.get $x) (local.get $x_end))))))
