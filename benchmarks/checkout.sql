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
