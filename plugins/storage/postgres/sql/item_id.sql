SELECT nextval('{schema}.fencepost_item_seq')
