-- TPC-C for PostgreSQL, as its own benchmarks lay it out: integer keys, order lines in a table of their own, and free
-- space in the pages of rows that change, so that an update touches no index.
--
-- Each transaction is one function, which returns what the terminal shows as JSON. Rows that a transaction changes are locked
-- in a fixed order (warehouse, district, stock by item), and what it reads without a lock never changes. So it is serializable
-- under READ COMMITTED. The two transactions that only read are STABLE: they see the snapshot of their call.

CREATE TABLE warehouse (
    w_id integer PRIMARY KEY,
    w_name text NOT NULL,
    w_street_1 text NOT NULL, w_street_2 text NOT NULL, w_city text NOT NULL, w_state text NOT NULL, w_zip text NOT NULL,
    w_tax numeric NOT NULL,
    w_ytd numeric NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE district (
    d_w_id integer, d_id integer,
    d_name text NOT NULL,
    d_street_1 text NOT NULL, d_street_2 text NOT NULL, d_city text NOT NULL, d_state text NOT NULL, d_zip text NOT NULL,
    d_tax numeric NOT NULL,
    d_ytd numeric NOT NULL,
    d_next_o_id integer NOT NULL,
    d_next_delivery integer NOT NULL,
    PRIMARY KEY (d_w_id, d_id)
) WITH (fillfactor = 10);

CREATE TABLE customer (
    c_w_id integer, c_d_id integer, c_id integer,
    c_first text NOT NULL, c_middle text NOT NULL, c_last text NOT NULL,
    c_street_1 text NOT NULL, c_street_2 text NOT NULL, c_city text NOT NULL, c_state text NOT NULL, c_zip text NOT NULL,
    c_phone text NOT NULL,
    c_since timestamptz NOT NULL,
    c_credit text NOT NULL,
    c_credit_lim numeric NOT NULL,
    c_discount numeric NOT NULL,
    c_balance numeric NOT NULL,
    c_ytd_payment numeric NOT NULL,
    c_data text NOT NULL,
    c_payment_cnt integer NOT NULL,
    c_delivery_cnt integer NOT NULL,
    PRIMARY KEY (c_w_id, c_d_id, c_id)
) WITH (fillfactor = 50);
CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first);

CREATE TABLE history (
    h_c_w_id integer NOT NULL, h_c_d_id integer NOT NULL, h_c_id integer NOT NULL,
    h_w_id integer NOT NULL, h_d_id integer NOT NULL,
    h_date timestamptz NOT NULL,
    h_amount numeric NOT NULL,
    h_data text NOT NULL
);

CREATE TABLE item (
    i_id integer PRIMARY KEY,
    i_im_id integer NOT NULL,
    i_name text NOT NULL,
    i_price numeric NOT NULL,
    i_data text NOT NULL
);

CREATE TABLE stock (
    s_w_id integer, s_i_id integer,
    s_quantity integer NOT NULL,
    s_dist text[] NOT NULL,
    s_data text NOT NULL,
    s_ytd bigint NOT NULL,
    s_order_cnt integer NOT NULL,
    s_remote_cnt integer NOT NULL,
    PRIMARY KEY (s_w_id, s_i_id)
) WITH (fillfactor = 50);

CREATE TABLE orders (
    o_w_id integer, o_d_id integer, o_id integer,
    o_c_id integer NOT NULL,
    o_entry_d timestamptz NOT NULL,
    o_ol_cnt integer NOT NULL,
    o_all_local boolean NOT NULL,
    o_carrier_id integer,
    PRIMARY KEY (o_w_id, o_d_id, o_id)
) WITH (fillfactor = 80);
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);

CREATE TABLE new_order (
    no_w_id integer, no_d_id integer, no_o_id integer,
    PRIMARY KEY (no_w_id, no_d_id, no_o_id)
);

CREATE TABLE order_line (
    ol_w_id integer, ol_d_id integer, ol_o_id integer, ol_number integer,
    ol_i_id integer NOT NULL,
    ol_supply_w_id integer NOT NULL,
    ol_quantity integer NOT NULL,
    ol_amount numeric NOT NULL,
    ol_dist_info text NOT NULL,
    ol_delivery_d timestamptz,
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
) WITH (fillfactor = 80);

-- Enter an order; null without effect where an item does not exist.
CREATE FUNCTION enter_order(w integer, d integer, c integer, items integer[], supplies integer[], quantities integer[])
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    place district; home warehouse; buyer customer; moment timestamptz := now(); lines json; total numeric; n integer;
    shelf integer; shelves integer[] := '{}';  -- the quantities after each line
BEGIN
    SELECT count(*) INTO n FROM unnest(items) AS wanted (i_id) JOIN item USING (i_id);
    IF n <> cardinality(items) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO home FROM warehouse WHERE w_id = w;
    SELECT * INTO buyer FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d RETURNING * INTO place;
    n := place.d_next_o_id - 1;
    INSERT INTO orders VALUES (w, d, n, c, moment, cardinality(items), w = ALL (supplies), NULL);
    INSERT INTO new_order VALUES (w, d, n);
    PERFORM 1 FROM stock WHERE (s_w_id, s_i_id) IN (SELECT * FROM unnest(supplies, items))
        ORDER BY s_w_id, s_i_id FOR UPDATE;
    FOR number IN 1 .. cardinality(items) LOOP  -- an order can have an item twice
        UPDATE stock SET
            s_quantity = s_quantity - quantities[number] + CASE WHEN s_quantity - quantities[number] < 10 THEN 91 ELSE 0 END,
            s_ytd = s_ytd + quantities[number],
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (supplies[number] <> w)::integer
        WHERE s_w_id = supplies[number] AND s_i_id = items[number] RETURNING s_quantity INTO shelf;
        shelves := shelves || shelf;
    END LOOP;
    WITH entered AS (
        INSERT INTO order_line
        SELECT w, d, n, number, i_id, s_w_id, quantity, quantity * i_price, s_dist[d], NULL
        FROM unnest(items, supplies, quantities) WITH ORDINALITY AS wanted (i_id, s_w_id, quantity, number)
        JOIN item USING (i_id) JOIN stock USING (s_w_id) WHERE s_i_id = i_id
        RETURNING ol_number, ol_i_id, ol_supply_w_id, ol_amount
    )
    SELECT
        json_agg(json_build_object(
            'i_name', i_name, 'i_price', i_price, 's_quantity', shelves[ol_number],
            'brand', i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%', 'ol_amount', ol_amount) ORDER BY ol_number),
        sum(ol_amount)
    INTO lines, total
    FROM entered JOIN item ON i_id = ol_i_id JOIN stock ON s_w_id = ol_supply_w_id AND s_i_id = ol_i_id;
    RETURN json_build_object(
        'o_id', n, 'o_entry_d', moment, 'c_last', buyer.c_last, 'c_credit', buyer.c_credit, 'c_discount', buyer.c_discount,
        'w_tax', home.w_tax, 'd_tax', place.d_tax,
        'total', round(total * (1 - buyer.c_discount) * (1 + home.w_tax + place.d_tax), 2), 'lines', lines);
END $$;

-- The customer in the middle of those with a last name, ordered by first name.
CREATE FUNCTION middle_of(w integer, d integer, name text) RETURNS integer STABLE LANGUAGE sql AS $$
    SELECT c_id FROM (
        SELECT c_id, row_number() OVER (ORDER BY c_first) AS number, count(*) OVER () AS every
        FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name
    ) AS named WHERE number = (every + 1) / 2
$$;

CREATE FUNCTION pay(w integer, d integer, c_w integer, c_d integer, c integer, amount numeric)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    home warehouse; place district; payer customer; moment timestamptz := now();
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w RETURNING * INTO home;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d RETURNING * INTO place;
    UPDATE customer SET
        c_balance = c_balance - amount,
        c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE c_credit WHEN 'BC' THEN left(
            format('%s %s %s %s %s %s|', c, c_d, c_w, d, w, amount) || c_data, 500) ELSE c_data END
    WHERE c_w_id = c_w AND c_d_id = c_d AND c_id = c RETURNING * INTO payer;
    INSERT INTO history VALUES (c_w, c_d, c, w, d, moment, amount, home.w_name || '    ' || place.d_name);
    RETURN json_build_object(
        'customer', json_build_array(c_w, c_d, c), 'c_first', payer.c_first, 'c_last', payer.c_last,
        'c_credit', payer.c_credit, 'c_discount', payer.c_discount, 'c_balance', payer.c_balance,
        'c_data', CASE payer.c_credit WHEN 'BC' THEN left(payer.c_data, 200) ELSE '' END, 'h_date', moment);
END $$;

CREATE FUNCTION show_status(w integer, d integer, c integer) RETURNS json STABLE LANGUAGE sql AS $$
    SELECT json_build_object(
        'c_first', c_first, 'c_middle', c_middle, 'c_last', c_last, 'c_balance', c_balance,
        'o_id', o_id, 'o_entry_d', o_entry_d, 'o_carrier_id', o_carrier_id, 'lines', (
            SELECT json_agg(json_build_object(
                'ol_i_id', ol_i_id, 'ol_supply_w_id', ol_supply_w_id, 'ol_quantity', ol_quantity,
                'ol_amount', ol_amount, 'ol_dist_info', ol_dist_info, 'ol_delivery_d', ol_delivery_d) ORDER BY ol_number)
            FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o_id))
    FROM customer, (
        SELECT * FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1) AS newest
    WHERE c_w_id = w AND c_d_id = d AND c_id = c
$$;

CREATE FUNCTION deliver(w integer, carrier integer) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := now(); done integer[] := '{}'; o integer; buyer integer; amount numeric;
BEGIN
    FOR d IN 1 .. 10 LOOP
        UPDATE district SET d_next_delivery = d_next_delivery + 1
        WHERE d_w_id = w AND d_id = d AND d_next_delivery < d_next_o_id RETURNING d_next_delivery - 1 INTO o;
        done := done || o;
        CONTINUE WHEN o IS NULL;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO buyer;
        WITH dated AS (
            UPDATE order_line SET ol_delivery_d = moment
            WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o RETURNING ol_amount)
        SELECT sum(ol_amount) INTO amount FROM dated;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = w AND c_d_id = d AND c_id = buyer;
    END LOOP;
    RETURN array_to_json(done);
END $$;

CREATE FUNCTION count_low_stock(w integer, d integer, threshold integer) RETURNS json STABLE LANGUAGE sql AS $$
    SELECT to_json(count(*)) FROM stock WHERE s_w_id = w AND s_quantity < threshold AND s_i_id IN (
        SELECT ol_i_id FROM order_line, district
        WHERE d_w_id = w AND d_id = d AND ol_w_id = w AND ol_d_id = d
        AND ol_o_id >= d_next_o_id - 20 AND ol_o_id < d_next_o_id)
$$;
