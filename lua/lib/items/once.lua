-- What is published once: item ids where the node ignores repeats (X1), and tickets that rows bring with them. A ticket may have
-- a digest of what its item says after it, with a zero byte between.
local once = {DIGEST = 'digest '}

local function ticket(row)
  return string.match(row.once, '^%z?[^%z]*')
end

function once.ignores(row)
  return row.item ~= '' and arg.dedupe == 'ignore'
end

function once.seen(row)
  return row.once ~= '' and remembered.has(remembered.TICKET, ticket(row))
    or once.ignores(row) and remembered.has(remembered.ITEM, row.item)
end

-- Whether what came under the ticket of a row said something else.
function once.differs(row)
  return ticket(row) ~= row.once and remembered.has(remembered.TICKET, ticket(row))
    and not remembered.has(once.DIGEST, row.once)
end

function once.remember(row)
  if row.once ~= '' then
    remembered.keep(remembered.TICKET, ticket(row), tonumber(arg.once_ms))
    if ticket(row) ~= row.once then remembered.keep(once.DIGEST, row.once, tonumber(arg.once_ms)) end
  end
  if once.ignores(row) then remembered.keep(remembered.ITEM, row.item, tonumber(arg.dedupe_ms)) end
end
