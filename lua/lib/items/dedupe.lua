-- Recognises repeated publishes: by item id where the node ignores repeats (X1), and by the tickets of rows. A ticket may be followed by
-- a zero byte and a digest of the item.
local dedupe = {DIGEST = 'digest '}

local function ticket(row)
  return string.match(row.once, '^%z?[^%z]*')
end

-- The publish did not take effect after all: the same one may be sent again.
function dedupe.forget(row)
  if row.item ~= '' then dedupe_window.forget(dedupe_window.ITEM, row.item) end
  if row.once ~= '' then
    dedupe_window.forget(dedupe_window.TICKET, ticket(row))
    dedupe_window.forget(dedupe.DIGEST, row.once)
  end
end

function dedupe.by_item_id(row)
  return row.item ~= '' and arg.dedupe == 'ignore'
end

function dedupe.has_seen(row)
  return row.once ~= '' and dedupe_window.has(dedupe_window.TICKET, ticket(row))
    or dedupe.by_item_id(row) and dedupe_window.has(dedupe_window.ITEM, row.item)
end

-- Whether the ticket of a row was used with another item.
function dedupe.differs(row)
  return ticket(row) ~= row.once and dedupe_window.has(dedupe_window.TICKET, ticket(row))
    and not dedupe_window.has(dedupe.DIGEST, row.once)
end

-- Writes for a repeat, without changing anything: WAIT covers only what its own connection has written, and the repeat may be waited for.
function dedupe.write_for_repeat(row)
  if row.once ~= '' then partition.put('revision', call.partition_before.revision) end
end

function dedupe.remember(row)
  if row.once ~= '' then
    dedupe_window.keep(dedupe_window.TICKET, ticket(row), tonumber(arg.once_ms))
    if ticket(row) ~= row.once then dedupe_window.keep(dedupe.DIGEST, row.once, tonumber(arg.once_ms)) end
  end
  if dedupe.by_item_id(row) then dedupe_window.keep(dedupe_window.ITEM, row.item, tonumber(arg.dedupe_ms)) end
end
