-- What is published once: item ids where the node ignores repeats (X1), and tickets that rows bring with them.
-- NEEDS:
--- @include remembered
local once = {}

function once.ignores(row)
  return row.item ~= '' and arg.dedupe == 'ignore'
end

function once.seen(row)
  return row.once ~= '' and remembered.has(remembered.TICKET, row.once)
    or once.ignores(row) and remembered.has(remembered.ITEM, row.item)
end

function once.remember(row)
  if row.once ~= '' then remembered.keep(remembered.TICKET, row.once, tonumber(arg.once_ms)) end
  if once.ignores(row) then remembered.keep(remembered.ITEM, row.item, tonumber(arg.dedupe_ms)) end
end
