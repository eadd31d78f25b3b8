-- The shop for PostgreSQL, as its own benchmarks would lay it out: integer keys, the basket inside
-- the order (what Penstock's Order does too), and free space in every page, so that an update
-- stays in its page and touches no index.

CREATE TABLE items (
    item_id integer PRIMARY KEY,
    price bigint NOT NULL,
    stock bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE users (
    user_id integer PRIMARY KEY,
    credit bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE orders (
    order_id integer PRIMARY KEY,
    user_id integer NOT NULL,
    items integer[] NOT NULL,
    quantities integer[] NOT NULL,
    total_cost bigint NOT NULL,
    paid boolean NOT NULL DEFAULT false,
    checkouts bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- The checkout as one call. Rows are locked in one order (order, items by key, user), so that
-- there are no deadlocks; an error undoes everything.
CREATE FUNCTION checkout(which integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    basket orders%ROWTYPE;
    available bigint;
BEGIN
    SELECT * INTO STRICT basket FROM orders WHERE order_id = which FOR UPDATE;
    PERFORM 1 FROM items WHERE item_id = ANY (basket.items) ORDER BY item_id FOR UPDATE;
    UPDATE items SET stock = stock - wanted.quantity
    FROM (
        SELECT item_id, sum(quantity) AS quantity
        FROM unnest(basket.items, basket.quantities) AS line (item_id, quantity)
        GROUP BY item_id
    ) AS wanted
    WHERE items.item_id = wanted.item_id AND stock >= wanted.quantity;
    GET DIAGNOSTICS available = ROW_COUNT;
    IF available < (SELECT count(DISTINCT line) FROM unnest(basket.items) AS line) THEN
        RAISE EXCEPTION 'out of stock';
    END IF;
    UPDATE users SET credit = credit - basket.total_cost
    WHERE user_id = basket.user_id AND credit >= basket.total_cost;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'not enough credit';
    END IF;
    UPDATE orders SET paid = true, checkouts = checkouts + 1 WHERE order_id = which;
    RETURN true;
END
$$;

-- Checkouts of many orders in one statement and one transaction, as sets: the best that we know how
-- to write. What the orders want in all is taken at once; where that does not work, each is tried by
-- itself, in order, and the answer says which were done. Batches come one after the other, because
-- two at once would wait for each other's rows, or deadlock.
CREATE FUNCTION checkout_all(which integer[]) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    one integer;
    done boolean[] := '{}';
    refused boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    BEGIN
        WITH asked AS MATERIALIZED (
            SELECT order_id, count(*) AS times FROM unnest(which) AS order_id GROUP BY order_id
        ), bought AS (
            UPDATE orders SET paid = true, checkouts = checkouts + times
            FROM asked WHERE orders.order_id = asked.order_id
            RETURNING user_id, items, quantities, total_cost, times
        ), wanted AS (
            SELECT line.item_id, sum(line.quantity * times) AS quantity
            FROM bought, unnest(items, quantities) AS line (item_id, quantity)
            GROUP BY line.item_id
        ), taken AS (
            UPDATE items SET stock = stock - quantity
            FROM wanted WHERE items.item_id = wanted.item_id AND stock >= quantity RETURNING 1
        ), owed AS (
            SELECT user_id, sum(total_cost * times) AS cost FROM bought GROUP BY user_id
        ), paid AS (
            UPDATE users SET credit = credit - cost
            FROM owed WHERE users.user_id = owed.user_id AND credit >= cost RETURNING 1
        )
        SELECT (SELECT count(*) FROM bought) < (SELECT count(*) FROM asked)
            OR (SELECT count(*) FROM taken) < (SELECT count(*) FROM wanted)
            OR (SELECT count(*) FROM paid) < (SELECT count(*) FROM owed)
        INTO refused;
        IF refused THEN
            RAISE EXCEPTION 'not all at once' USING ERRCODE = 'SHOP1';
        END IF;
        RETURN array_fill(true, ARRAY[cardinality(which)]);
    EXCEPTION WHEN SQLSTATE 'SHOP1' THEN
        FOREACH one IN ARRAY which LOOP
            BEGIN
                done := done || checkout(one);
            EXCEPTION WHEN raise_exception OR no_data_found THEN
                done := done || false;
            END;
        END LOOP;
        RETURN done;
    END;
END
$$;
